#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tessera {

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

}  // namespace tessera
