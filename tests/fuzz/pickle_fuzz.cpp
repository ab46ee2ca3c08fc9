// A pickle: refused with a ConfigError, or a value that can be looked into.
#include "framework/interop/torch/torch_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tessera;
  try {
    const torch::Pickle pickle(std::as_bytes(std::span(data, size)), "fuzz");
    const auto& root = pickle.root();
    for (const char* key : {"args", "model", "optimizer", "iteration"})
      if (const auto* value = root.find(key); value != nullptr) {
        torch::TorchFile::is_tensor(*value);
        for (const auto* item : value->items) torch::TorchFile::is_tensor(*item);
      }
    torch::TorchFile::is_tensor(root);
  } catch (const ConfigError&) {
  }
  return 0;
}
