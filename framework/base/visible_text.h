#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tessera {

/// `words` for a terminal: names of tensors, files, keys and tokens come from files of others, and a terminal obeys
/// control characters in them. Control characters other than newline and tab, and the characters that reverse the
/// direction of a line, become their number: "\u001b" (also valid inside a string of JSON); bytes that are not UTF-8
/// become "\x9b". Everything else is unchanged.
std::string visible(std::string_view words);
/// Whether visible() would certainly change nothing: printable ASCII, newlines and tabs only. Does not allocate memory.
bool is_plain_text(std::string_view words);

/// Number of bytes of `words` before a UTF-8 character that is cut off at the end; all of them if none is.
std::size_t whole_characters(std::string_view words);

/// `words` for an error message: more than 80 bytes are shortened to their beginning and end with the number of bytes.
std::string shortened(std::string_view words);

}  // namespace tessera
