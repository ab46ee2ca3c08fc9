#pragma once

#include <string>

namespace tessera {

/// `words` as one word of a POSIX shell, or of fish if it has no backslash: in single quotes.
std::string in_shell_quotes(const std::string& words);

/// `words` as text of a manual page (roff): nothing in it is a request or an escape.
std::string in_roff(const std::string& words);

}  // namespace tessera
