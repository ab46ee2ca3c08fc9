// A vocab.json and a merges.txt, one behind the other with a NUL between: refused with a ConfigError, or texts become ids
// of the vocabulary, and those that have a token for every byte become the same bytes again.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "framework/base/error.h"
#include "framework/data/bpe.h"

namespace {

class MemoryFile {
 public:
  MemoryFile() : file_(memfd_create("bpe", 0)), name_("/proc/self/fd/" + std::to_string(file_)) {}
  const std::string& write(std::string_view bytes) const {
    if (file_ < 0 || ftruncate(file_, 0) != 0 ||
        pwrite(file_, bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
      std::abort();
    return name_;
  }

 private:
  int file_;
  std::string name_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tessera;
  static const MemoryFile vocabulary, merges;
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  const auto cut = std::min(all.find('\0'), all.size());
  try {
    const BpeModel model(vocabulary.write(all.substr(0, cut)), merges.write(all.substr(std::min(cut + 1, size))));
    BpeModel::Scratch scratch;
    const std::string longer(300, 'l');
    for (const std::string_view piece : {std::string_view("Hello"), std::string_view(" wor\xC3\xA9ld\n\t"),
                                         std::string_view("lllol"), std::string_view(longer), all.substr(0, 64)}) {
      std::vector<std::int32_t> ids;
      model.encode(piece, ids, scratch);
      std::string bytes;
      bool known = true;
      for (const auto id : ids) {
        if (id < 0) std::abort();
        known = known && id != 0;
        bytes += model.bytes(id);
      }
      if (!piece.empty() && ids.empty()) std::abort();
      if (known && bytes != piece) std::abort();
    }
  } catch (const ConfigError&) {
  }
  return 0;
}
