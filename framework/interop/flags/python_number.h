#pragma once

#include <string>

namespace tessera::flags {

/// Converts a number that Python's int() or float() reads to the spelling of YAML: "183_105" to 183105, " 1e-5 " to
/// 1e-5. Blanks around the word and single underscores between digits are removed. Any other word is returned
/// unchanged.
std::string python_number(const std::string& word);

}  // namespace tessera::flags
