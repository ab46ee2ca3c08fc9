#pragma once

#include <string>
#include <vector>

#include "framework/options/value.h"

namespace tessera::tables {

/// A JSON object of another program's settings, converted to our options by the rows under `config` of `table`
/// (docs/checkpoints.md). Rows of `common` apply to keys that `table` has no row for. Without `common`, keys that have
/// no row are left out; with it they are an error. Throws ConfigError, beginning with `speaker`, that names every key
/// which cannot be converted and every option under `needed` of `table` that no key gives.
options::Value read_by_table(const std::string& json, const std::string& speaker, const options::Value& table,
                             const options::Value* common = nullptr);

/// The reverse: `ours` as a JSON object, by the same rows, added to the JSON object `begun`. Throws ConfigError,
/// beginning with "a `program`", for a value that the rows have no word for.
std::string write_by_table(const options::Value& ours, const options::Value& table, const std::string& program,
                           const options::Value* common = nullptr, const std::string& begun = "{}");

/// The rows under `config` of `table`, then those of `common` (may be null) for other keys.
std::vector<options::Value::Field> config_rows(const options::Value& table, const options::Value* common);

}  // namespace tessera::tables
