#pragma once

#include <string>

namespace tessera::flags {

/// A number as Python's int() and float() read it, in the spelling of YAML: "183_105" is 183105, " 1e-5 " is 1e-5.
/// Blanks around the word and single underscores between digits are taken out. Any other word, and a word that is no
/// number, comes back as it is.
std::string python_number(const std::string& word);

}  // namespace tessera::flags
