#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "framework/data/unicode_code_points.h"

namespace tessera {

/// What GPT-2's pre-tokenizer tells apart: \p{L}, \p{N}, \s and the rest.
enum class UnicodeClass : std::uint8_t { other, letter, number, space };

/// The class of every code point: two bits each, 272 kB.
class UnicodeClasses {
 public:
  /// v18: as Python's module `regex` has it.
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
/// A byte that is not UTF-8 counts as a character of class `other`.
std::size_t next_piece(const UnicodeClasses& classes, std::string_view text, std::size_t at);

}  // namespace tessera
