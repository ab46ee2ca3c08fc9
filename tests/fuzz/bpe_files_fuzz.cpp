// A vocab.json and a merges.txt, one behind the other with a NUL between: refused with a ConfigError, or texts become
// ids of the vocabulary, and those that have a token for every byte become the same bytes again if no two tokens share
// an id.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "framework/base/error.h"
#include "framework/tokenizers/bpe.h"

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

// Whether each token is named once and has an id of its own: only then ids have one meaning.
bool is_one_to_one(std::string_view vocabulary) {
  std::size_t keys = 0;
  const auto count = [&](int, nlohmann::json::parse_event_t event, nlohmann::json&) {
    keys += event == nlohmann::json::parse_event_t::key ? 1 : 0;
    return true;
  };
  const auto all = nlohmann::json::parse(vocabulary, count, false);
  std::set<std::uint64_t> ids;
  for (const auto& id : all) ids.insert(id.get<std::uint64_t>());
  return ids.size() == keys;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tessera;
  static const MemoryFile vocabulary, merges;
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  const auto cut = std::min(all.find('\0'), all.size());
  try {
    const tokenizers::BpeModel model(vocabulary.write(all.substr(0, cut)),
                                     merges.write(all.substr(std::min(cut + 1, size))));
    const bool one_to_one = is_one_to_one(all.substr(0, cut));
    tokenizers::BpeModel::Scratch scratch;
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
      if (known && one_to_one && bytes != piece) std::abort();
    }
  } catch (const ConfigError&) {
  }
  return 0;
}
