#pragma once

#include <string>
#include <vector>

#include "framework/options/value.h"

namespace tessera::tables {

/// Converts a JSON object with another program's settings to our options, by the rows under `config` of `table`
/// (docs/checkpoints.md). Rows of `common` apply to keys for which `table` has no row. Without `common`, keys without a
/// row are ignored; with it they are an error. Throws ConfigError, beginning with `speaker`, that names every key that
/// cannot be converted and every option under `needed` of `table` that no key gives.
options::Value read_by_table(const std::string& json, const std::string& speaker, const options::Value& table,
                             const options::Value* common = nullptr);

/// The inverse of read_by_table: converts `ours` by the same rows and adds the result to the JSON object `begun`.
/// Throws ConfigError, beginning with "a `program`", for a value that the rows cannot express.
std::string write_by_table(const options::Value& ours, const options::Value& table, const std::string& program,
                           const options::Value* common = nullptr, const std::string& begun = "{}");

/// The rows under `config` of `table`, then those of `common` (may be null) for other keys.
std::vector<options::Value::Field> config_rows(const options::Value& table, const options::Value* common);

}  // namespace tessera::tables
