#include "framework/checkpoint/frozen_base.h"

#include <algorithm>
#include <charconv>
#include <iomanip>
#include <set>
#include <sstream>
#include <utility>

#include "framework/checkpoint/format.h"

namespace tessera::checkpoint {
namespace {

constexpr int hexadecimal = 16;
constexpr std::size_t digits_of_digest = 16;

}  // namespace

std::string write_base(const FrozenBase& base) {
  std::ostringstream out;
  out << std::hex << std::setfill('0') << std::setw(digits_of_digest) << base.digest << ' ' << base.name << '\n';
  return out.str();
}

FrozenBase read_base(const std::string& line) {
  FrozenBase base;
  const auto* end = line.data() + std::min(line.size(), digits_of_digest);
  const auto read = std::from_chars(line.data(), end, base.digest, hexadecimal);
  if (read.ec != std::errc() || read.ptr != end || line.size() < digits_of_digest + 3 ||
      line[digits_of_digest] != ' ' || line.back() != '\n')
    throw DamageError(text(frozen_base_blob, ": '", line, "' is not a digest and the name of a folder"));
  base.name = line.substr(digits_of_digest + 1, line.size() - digits_of_digest - 2);
  return base;
}

std::optional<FrozenBase> base_in(const Blobs& blobs) {
  const auto found = blobs.find(frozen_base_blob);
  if (found == blobs.end()) return std::nullopt;
  return read_base(found->second);
}

std::unique_ptr<OpenedCheckpoint> with_frozen(std::unique_ptr<OpenedCheckpoint> opened, const OpenNamed& open) {
  std::set<std::filesystem::path> seen;
  while (opened) {
    const auto base = base_in(opened->blobs());
    if (!base) return opened;
    if (!seen.insert(std::filesystem::weakly_canonical(opened->folder())).second)
      throw ConfigError(text(opened->folder().string(), ": ", opened->about_left_out(),
                             ", but the checkpoint there was saved without them too"));
    opened = open(base->name);
  }
  return nullptr;
}

}  // namespace tessera::checkpoint
