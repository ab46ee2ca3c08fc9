#pragma once

#include <string>
#include <vector>

#include "framework/options/report.h"
#include "framework/options/value.h"

// Reads and writes YAML. No other functions of the framework know YAML.
//
// Numbers: 1e-5 is a number, 010 is ten, 0x10 is sixteen, 1_000 is text. Anchors, aliases and merge keys (<<) are
// supported. A file may begin with a byte order mark and have CRLF line ends.

namespace tessera::options {

/// Reads a recipe on top of the files that its `base` names, then overrides it by each "path=value" of `sets`. `base`
/// is one file or a list of files, each relative to the file that names it, else one of configs/, which are compiled
/// into the program: "models/llama2_7b.yaml".
///
/// ${NAME} in a value is replaced by the environment variable NAME, ${NAME:-words} by `words` if NAME is unset or
/// empty, $${NAME} by the text ${NAME}. Top-level keys that begin with `x-` are dropped; they only hold anchors.
///
/// Mistakes go to `report` with file and line: a file that cannot be read or is empty, invalid YAML, tabs as
/// indentation, a duplicate key, an unset variable, a file that is its own base. Reading continues as far as that is
/// useful.
Value read_yaml(const std::string& file_name, const std::vector<std::string>& sets, Report& report);
/// Reads a recipe in the same way; throws ConfigError with all mistakes, one per line.
Value read_yaml(const std::string& file_name, const std::vector<std::string>& sets = {});
/// Overrides `tree` by each "path=value" of `sets`, as `read_yaml` does; mistakes go to `report`.
void lay_sets(Value& tree, const std::vector<std::string>& sets, Report& report);
/// Parses `words` as one YAML text, without bases and environment variables. Origins and messages call the text `name`.
/// Throws ConfigError with all mistakes, one per line.
Value parse_yaml(const std::string& words, const std::string& name);
/// Parses the text as far as possible; mistakes go to `report`.
Value parse_yaml(const std::string& words, const std::string& name, Report& report);
/// Parses `words`, a JSON text, with the lines of its values. Of equal names in an object the last one counts, as for
/// Python's json; `report` gets a note.
Value parse_json_as_yaml(std::string words, const std::string& name, Report& report);

/// Writes `tree` as YAML that `read_yaml` reads back to the same tree, with a comment beside each value that says where
/// it was written.
std::string write_yaml(const Value& tree);

}  // namespace tessera::options
