// A model.safetensors.index.json beside two files of weights: refused with a ConfigError, or every tensor that it names
// is read, and those of the files that it does not name are known.
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "framework/checkpoint/safetensors.h"

namespace {

namespace fs = std::filesystem;
using namespace tessera;

struct Folder {
  fs::path path = fs::path(access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp") /
                  ("tessera_weight_index_fuzz." + std::to_string(getpid()));
  Folder() {
    fs::create_directories(path);
    std::array<float, 4> values = {1, 2, 3, 4};
    const Tensor tensor{std::span<float>(values), Shape{2, 2}};
    checkpoint::write_safetensors(path / "a.safetensors", {{"model.a", tensor}, {"model.b", tensor}});
    checkpoint::write_safetensors(path / "b.safetensors", {{"model.c", tensor}});
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Folder folder;
  const auto index = folder.path / "model.safetensors.index.json";
  std::ofstream(index, std::ios::binary).write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  try {
    const checkpoint::SafetensorsReader reader(index);
    for (const auto& name : reader.names())
      if (reader.tensor(name).floats()[3] != 4) std::abort();
    if (reader.names().size() < reader.unnamed().size()) std::abort();
  } catch (const ConfigError&) {
  }
  return 0;
}
