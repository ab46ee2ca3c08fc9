#include <cstring>

#include "framework/images/codecs.h"

namespace tessera::images {
namespace {

/// TIFF data: whole numbers in the byte order that its header names.
class Tiff {
 public:
  explicit Tiff(Bytes bytes) : bytes_(bytes), big_(!bytes.empty() && bytes[0] == std::byte{'M'}) {}

  /// The number of `width` bytes at `offset`; 0 beyond the end.
  std::uint32_t number(std::size_t offset, std::size_t width) const {
    if (offset > bytes_.size() || bytes_.size() - offset < width) return 0;
    std::uint32_t value = 0;
    for (std::size_t i = 0; i < width; ++i)
      value = value << 8 | std::to_integer<std::uint32_t>(bytes_[offset + (big_ ? i : width - 1 - i)]);
    return value;
  }

  bool valid() const {
    return bytes_.size() >= 8 && (bytes_[0] == std::byte{'I'} || big_) && bytes_[0] == bytes_[1] && number(2, 2) == 42;
  }

 private:
  Bytes bytes_;
  bool big_;
};

constexpr std::uint32_t orientation_tag = 0x0112;
constexpr std::uint32_t type_short = 3, type_long = 4;

}  // namespace

int exif_orientation(Bytes exif) {
  static constexpr char head[] = {'E', 'x', 'i', 'f', 0, 0};
  while (exif.size() >= sizeof(head) && std::memcmp(exif.data(), head, sizeof(head)) == 0)
    exif = exif.subspan(sizeof(head));
  const Tiff tiff(exif);
  if (!tiff.valid()) return 1;
  const std::size_t folder = tiff.number(4, 4);
  const auto entries = tiff.number(folder, 2);
  for (std::uint32_t i = 0; i < entries; ++i) {
    const auto entry = folder + 2 + std::size_t{12} * i;
    if (tiff.number(entry, 2) != orientation_tag) continue;
    const auto type = tiff.number(entry + 2, 2);
    const auto value = tiff.number(entry + 8, type == type_short ? 2 : 4);
    return (type == type_short || type == type_long) && value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
  }
  return 1;
}

}  // namespace tessera::images
