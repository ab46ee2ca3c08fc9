#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace tessera::images {

/// EXIF data with one entry, the orientation; `big`: the upper byte first. `type`: 3 for 16 bits, 4 for 32.
inline std::string exif_with(bool big, std::uint16_t type, std::uint16_t value) {
  const auto two = [&](unsigned x) {
    return big ? std::string{static_cast<char>(x >> 8), static_cast<char>(x)}
               : std::string{static_cast<char>(x), static_cast<char>(x >> 8)};
  };
  const auto four = [&](unsigned x) { return big ? two(x >> 16) + two(x & 0xFFFF) : two(x & 0xFFFF) + two(x >> 16); };
  return (big ? "MM" : "II") + two(42) + four(8) + two(1) + two(0x0112) + two(type) + four(1) +
         (type == 3 ? two(value) + two(0) : four(value)) + four(0);
}

inline std::string big_endian(std::uint32_t value) {
  std::string bytes;
  for (int i = 0; i < 4; ++i) bytes += static_cast<char>(value >> (24 - 8 * i));
  return bytes;
}

inline std::uint32_t crc32_of(const std::string& bytes) {
  std::uint32_t crc = 0xFFFFFFFF;
  for (const char byte : bytes) {
    crc ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (0xEDB88320 & (0 - (crc & 1)));
  }
  return ~crc;
}

/// The PNG file `png`, which has no EXIF data, with `exif` behind its pixels.
inline std::string png_with_late_exif(std::string png, const std::string& exif) {
  constexpr std::size_t end = 12;  // the chunk IEND
  return png.insert(png.size() - end, big_endian(static_cast<std::uint32_t>(exif.size())) + "eXIf" + exif +
                                          big_endian(crc32_of("eXIf" + exif)));
}

/// The WebP file `webp`, a lossy picture alone, of width x height pixels, with `exif`.
inline std::string webp_with_exif(const std::string& webp, std::uint32_t width, std::uint32_t height,
                                  const std::string& exif) {
  const auto little = [](std::uint32_t value, std::size_t size) {
    const auto bytes = big_endian(value);
    return std::string(bytes.rbegin(), bytes.rbegin() + static_cast<std::ptrdiff_t>(size));
  };
  constexpr std::uint32_t has_exif = 8;
  const auto chunk = [&](const std::string& name, const std::string& content) {
    return name + little(static_cast<std::uint32_t>(content.size()), 4) + content + std::string(content.size() % 2, 0);
  };
  const auto all = "WEBP" + chunk("VP8X", little(has_exif, 4) + little(width - 1, 3) + little(height - 1, 3)) +
                   webp.substr(12) + chunk("EXIF", exif);
  return chunk("RIFF", all);
}

}  // namespace tessera::images
