#include "framework/checkpoint/frozen_base.h"

#include <algorithm>
#include <charconv>
#include <iomanip>
#include <sstream>

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

std::optional<FrozenBase> base_in(const Blobs& blobs) {
  const auto found = blobs.find(frozen_base_blob);
  if (found == blobs.end()) return std::nullopt;
  const auto& line = found->second;
  FrozenBase base;
  const auto* end = line.data() + std::min(line.size(), digits_of_digest);
  const auto read = std::from_chars(line.data(), end, base.digest, hexadecimal);
  if (read.ec != std::errc() || read.ptr != end || line.size() < digits_of_digest + 3 ||
      line[digits_of_digest] != ' ' || line.back() != '\n')
    throw DamageError(text(frozen_base_blob, ": '", line, "' is not a digest and the name of a folder"));
  base.name = line.substr(digits_of_digest + 1, line.size() - digits_of_digest - 2);
  return base;
}

}  // namespace tessera::checkpoint
