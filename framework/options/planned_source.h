#pragma once

#include <string>

namespace tessera::options {

/// The C++ source that defines planned_rows() (recipe/planned_options.h) for `table`, the text of a YAML file that
/// messages call `name`:
///
///     group:
///       key: {type: TYPE, takes: [DEFAULT, OTHER, ...], also: [OTHER NAME, ...], text: "...", no_flag: "..."}
///
/// `also` and `no_flag` are optional. Throws ConfigError with all mistakes of the table, one per line, with file and
/// line: invalid YAML, an unknown field, a type that planned_type does not know, a value that is not of the type.
/// Called only by the build (options/planned_table/main.cpp), because reading the YAML at each start of the program
/// would take 8 ms.
std::string planned_source(const std::string& table, const std::string& name);

}  // namespace tessera::options
