#pragma once

#include <string>

namespace tessera::options {

/// The C++ source that defines planned_rows() (recipe/planned_options.h) for `table`, the text of a YAML file that
/// messages call `name`:
///
///     group:
///       key: {type: TYPE, takes: [DEFAULT, OTHER, ...], also: [OTHER NAME, ...], text: "...", no_flag: "..."}
///
/// `also` and `no_flag` may be missing. Throws ConfigError with all that is wrong with the table, a line each, with
/// file and line: what is no YAML, an unknown field, a type that planned_type does not know, a value that the type does
/// not read. Called by the build only (options/planned_table/main.cpp), because reading the YAML at each start of the
/// program takes 8 ms.
std::string planned_source(const std::string& table, const std::string& name);

}  // namespace tessera::options
