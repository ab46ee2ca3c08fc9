#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "framework/unicode/unicode_code_points.h"

namespace tessera::unicode {

/// The character classes of GPT-2's pre-tokenizer: \p{L}, \p{N}, \s and all others.
enum class UnicodeClass : std::uint8_t { other, letter, number, space };

/// The class of every code point: two bits each, 272 kB.
class UnicodeClasses {
 public:
  /// v18: the version of Python's module `regex`.
  explicit UnicodeClasses(unicode::Version version = unicode::Version::v18);
  UnicodeClass of(char32_t code) const {
    return static_cast<UnicodeClass>((bits_[code >> 2U] >> (2 * (code & 3U))) & 3U);
  }

 private:
  std::vector<std::uint8_t> bits_;
};

/// Length in bytes of the piece of `text` that begins at `at`, as GPT-2's expression cuts it:
///
///     's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
///
/// A byte that is not UTF-8 is treated as a character of class `other`.
std::size_t next_piece(const UnicodeClasses& classes, std::string_view text, std::size_t at);

namespace detail {

std::size_t next_piece_of_any_kind(const UnicodeClasses& classes, std::string_view text, std::size_t at);

/// Number of the 8 bytes, from the lowest on, that are consecutive ASCII letters.
inline std::size_t leading_ascii_letters(std::uint64_t bytes) {
  constexpr std::uint64_t ones = 0x0101010101010101U, tops = 0x80 * ones;
  const auto lower = (bytes | (0x20 * ones)) & ~tops;
  const auto from_a = lower + (0x80 - 'a') * ones, above_z = lower + (0x80 - 'z' - 1) * ones;
  const auto others = ~(from_a & ~above_z & ~bytes) & tops;
  return others == 0 ? 8 : static_cast<std::size_t>(__builtin_ctzll(others)) / 8;
}

}  // namespace detail

inline std::size_t next_piece(const UnicodeClasses& classes, std::string_view text, std::size_t at) {
  // Most pieces: letters of ASCII, with a blank before them or without.
  const std::size_t first = at + (text[at] == ' ' ? 1 : 0);
  auto end = first;
  std::size_t ascii_letters = 8;
  while (ascii_letters == 8 && end + 8 <= text.size()) {
    std::uint64_t bytes;
    std::memcpy(&bytes, text.data() + end, 8);
    ascii_letters = detail::leading_ascii_letters(bytes);
    end += ascii_letters;
  }
  if (ascii_letters < 8 && end > first && static_cast<unsigned char>(text[end]) < 0x80) return end - at;
  return detail::next_piece_of_any_kind(classes, text, at);
}

}  // namespace tessera::unicode
