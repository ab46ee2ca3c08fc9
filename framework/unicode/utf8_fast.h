#pragma once

#include <cstddef>
#include <string_view>

namespace tessera::unicode {

/// A character of a text that is known to be valid UTF-8.
struct Utf8Character {
  char32_t code;
  std::size_t length;
};

/// The character that begins at byte `at` of `text`, which must be valid UTF-8.
inline Utf8Character character_at(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<char32_t>(static_cast<unsigned char>(text[at + i])); };
  const auto first = byte(0);
  if (first < 0x80) return {first, 1};
  if (first < 0xE0) return {((first & 0x1FU) << 6U) | (byte(1) & 0x3FU), 2};
  if (first < 0xF0) return {((first & 0xFU) << 12U) | ((byte(1) & 0x3FU) << 6U) | (byte(2) & 0x3FU), 3};
  return {((first & 7U) << 18U) | ((byte(1) & 0x3FU) << 12U) | ((byte(2) & 0x3FU) << 6U) | (byte(3) & 0x3FU), 4};
}

/// Start of the character that ends before byte `at` > 0.
inline std::size_t before(std::string_view text, std::size_t at) {
  do --at;
  while ((static_cast<unsigned char>(text[at]) & 0xC0U) == 0x80);
  return at;
}

}  // namespace tessera::unicode
