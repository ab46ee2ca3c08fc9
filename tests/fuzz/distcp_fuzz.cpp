// An item of a .distcp file, or a common.pt, between other bytes of a file: refused with a ConfigError, or every tensor
// in it is read, or its checksum is wrong.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>

#include "framework/base/files.h"
#include "framework/checkpoint/checkpoint.h"
#include "framework/interop/torch/torch_file.h"

namespace {

using namespace tessera;

void read_all(const torch::TorchFile& file, const torch::PickleNode& node, int depth) {
  if (depth > 20) return;
  if (torch::TorchFile::is_tensor(node)) {
    try {
      const auto header = file.header(node, "a tensor");
      if (header.bytes() > (std::size_t{1} << 24)) return;
      std::vector<std::byte> elements(header.bytes());
      file.read(node, "a tensor", elements);
      (void)file.tensor(node, "a tensor");
    } catch (const ConfigError&) {
    } catch (const checkpoint::DamageError&) {
    }
  }
  for (const auto* item : node.items) read_all(file, *item, depth + 1);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto words = "before" + std::string(reinterpret_cast<const char*>(data), size) + "behind";
  const int memory = memfd_create("distcp", 0);
  if (memory < 0 || write(memory, words.data(), words.size()) != static_cast<ssize_t>(words.size())) std::abort();
  const auto mapped = std::make_shared<const MappedFile>("/proc/self/fd/" + std::to_string(memory));
  close(memory);
  try {
    torch::TorchFile file(mapped, 6, size, "fuzz");
    file.check_sums();
    read_all(file, file.root(), 0);
    file.verify();
  } catch (const ConfigError&) {
  } catch (const checkpoint::DamageError&) {
  }
  return 0;
}
