#pragma once

#include <string>
#include <string_view>

namespace tessera {

inline constexpr std::size_t help_width = 80;  ///< columns of a page of help

/// `words` in lines of at most `help_width` columns, broken at blanks and after '|', ',' and '}'; lines after the first
/// begin with `indent` blanks, and the first has `used` columns already. A word that is wider than a line is not cut.
/// Without a newline at the end.
std::string wrapped(std::string_view words, std::size_t indent, std::size_t used = 0);

/// An entry of a page of help: `head` ("  --set KEY=VALUE"), and `words` in a column beside or below it.
std::string help_entry(const std::string& head, std::string_view words);

}  // namespace tessera
