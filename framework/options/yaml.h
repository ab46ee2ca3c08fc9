#pragma once

#include <string>
#include <vector>

#include "framework/options/report.h"
#include "framework/options/value.h"

// YAML, read and written. These are the only functions of the framework that know it.
//
// Numbers are what they look like: 1e-5 is one, 010 is ten, 0x10 sixteen. 1_000 is text. Anchors, aliases and
// merge keys (<<) work. A file may begin with a byte order mark and end its lines as Windows does.

namespace tessera::options {

/// Read a recipe on top of the files its `base` names (one, or a list; relative to the file that names them, else one
/// of configs/, which come with the program: "models/llama2_7b.yaml"), then lay each "path=value" of `sets` on it.
///
/// ${NAME} in a value is the environment's NAME, ${NAME:-words} is `words` where NAME is unset or empty,
/// $${NAME} is the text ${NAME}. Top level keys that begin with `x-` only hold anchors and are dropped.
///
/// What is wrong goes to `report` with its file and line: a file that cannot be read or is empty, what is no
/// YAML, tabs that indent, a key given twice, an unset variable, a file that is its own base. Reading goes on
/// as far as that makes sense.
Value read_yaml(const std::string& file_name, const std::vector<std::string>& sets, Report& report);
/// The same; throws ConfigError with all that is wrong.
Value read_yaml(const std::string& file_name, const std::vector<std::string>& sets = {});
/// Lay each "path=value" of `sets` on `tree`, as `read_yaml` does.
void lay_sets(Value& tree, const std::vector<std::string>& sets, Report& report);
/// Read `words` as one YAML text; no bases, no environment. Origins say `name`. Throws ConfigError.
Value parse_yaml(const std::string& words, const std::string& name);
/// The same as far as it can be read; what is wrong goes to `report`.
Value parse_yaml(const std::string& words, const std::string& name, Report& report);

/// `tree` as YAML that `read_yaml` reads back to the same tree, beside each value a comment that says where
/// it was written.
std::string write_yaml(const Value& tree);

}  // namespace tessera::options
