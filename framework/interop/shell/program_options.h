#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// Options of the small programs whose output is computed: those of GNU coreutils.

namespace tessera::shell {

struct ProgramOptions {
  std::map<char, std::string> given;  ///< letter -> value; empty for options without a value
  std::vector<std::string> operands;
  bool has(char letter) const { return given.count(letter) != 0; }
};

/// The options of a program that are read here.
struct KnownOptions {
  std::string_view bare, valued;           ///< their letters; those with a value
  std::map<std::string_view, char> named;  ///< "lines" -> 'n'
};

/// Reads the words of a program, behind its name. Nothing if an option is not among the known ones or lacks its value.
std::optional<ProgramOptions> program_options(const std::vector<std::string>& words, const KnownOptions& known);

/// What tr, cut, wc, head and tail make of their input. Nothing: it is not known, or an option is not read.
std::optional<std::string> filtered(const std::vector<std::string>& words, const std::string& input);

}  // namespace tessera::shell
