#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tessera::unicode {

/// The replacement character U+FFFD, in UTF-8.
inline constexpr std::string_view replacement_character = "\xEF\xBF\xBD";

/// One decoded character, or an invalid part.
struct Utf8Step {
  char32_t code = 0;
  std::size_t length = 1;  ///< bytes of the character, or of the invalid part that one U+FFFD replaces
  bool valid = false;
  bool truncated = false;  ///< the text ends inside a character that is valid so far
};

/// Decodes the character that begins at `text[at]`. Invalid text is divided as the Unicode standard recommends (table
/// 3-8) and Python does: the longest prefix of a possible character is one part.
Utf8Step utf8_step(std::string_view text, std::size_t at);

/// `code` as UTF-8.
std::string to_utf8(char32_t code);

/// Position of the first byte that is not UTF-8; npos if the text is valid.
std::size_t first_not_utf8(std::string_view text);

/// `bytes` with each invalid part replaced by U+FFFD.
std::string with_replacements(std::string_view bytes);

/// Removes all complete characters from `held` and returns them, with invalid parts replaced; only the beginning of an
/// incomplete character remains in `held`.
std::string take_complete(std::string& held);

}  // namespace tessera::unicode
