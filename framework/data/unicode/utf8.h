#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tessera::data {

/// The sign for what could not be read, U+FFFD.
inline constexpr std::string_view replacement_character = "\xEF\xBF\xBD";

/// One character, or why there is none.
struct Utf8Step {
  char32_t code = 0;
  std::size_t length = 1;  ///< bytes of the character, or of the broken part that one U+FFFD stands for
  bool valid = false;
  bool truncated = false;  ///< the text ends inside a character that was good so far
};

/// The character that begins at `text[at]`. Broken text is cut as the Unicode standard recommends (table 3-8) and
/// Python does: the longest beginning of a character that could have been good is one part.
Utf8Step utf8_step(std::string_view text, std::size_t at);

/// `code` as UTF-8.
std::string to_utf8(char32_t code);

/// Where the first byte is that is not UTF-8; npos when all is.
std::size_t first_not_utf8(std::string_view text);

/// `bytes` with U+FFFD for each broken part.
std::string with_replacements(std::string_view bytes);

/// Take from `held` all that is certain, broken parts replaced; leave only the beginning of an unfinished character.
std::string take_complete(std::string& held);

}  // namespace tessera::data
