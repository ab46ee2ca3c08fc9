// An .idx file beside a .bin file of 64 bytes: refused with a ConfigError, or every sequence of every document is read.
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "framework/indexed/dataset_summary.h"

namespace {

// A file in memory where there is such a folder, under a name of this process.
void write(const std::string& name, std::string_view bytes) {
  auto* file = std::fopen(name.c_str(), "wb");
  if (file == nullptr || std::fwrite(bytes.data(), 1, bytes.size(), file) != bytes.size()) std::abort();
  std::fclose(file);
}

struct Files {
  std::string prefix =
      (access("/dev/shm", W_OK) == 0 ? "/dev/shm/" : "/tmp/") + ("tessera_index_fuzz." + std::to_string(getpid()));
  Files() { write(prefix + ".bin", std::string(64, '\5')); }
  ~Files() {
    for (const auto* end : {".bin", ".idx"}) std::remove((prefix + end).c_str());
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tessera;
  static const Files files;
  write(files.prefix + ".idx", {reinterpret_cast<const char*>(data), size});
  try {
    const indexed::IndexedDataset dataset(files.prefix);
    const auto summary = indexed::summarize(dataset);
    std::int64_t sequences = 0;
    for (const auto& bucket : summary.histogram) sequences += bucket.sequences;
    if (sequences != dataset.sequences()) std::abort();
    for (std::int64_t s = 0; s < dataset.sequences(); ++s) (void)dataset.mode(s);
    const auto check = indexed::check_tokens(dataset, 5);
    if (check.tokens != dataset.tokens() || check.outside != check.tokens) std::abort();
  } catch (const ConfigError&) {
  }
  return 0;
}
