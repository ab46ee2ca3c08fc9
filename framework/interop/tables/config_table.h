#pragma once

#include <string>
#include <vector>

#include "framework/options/value.h"

namespace tessera {

/// A JSON object of another program's settings, converted to our options by the rows under `config` of `table`
/// (docs/checkpoints.md). Rows of `common` apply to keys that `table` has no row for. Without `common`, keys that have
/// no row are left out; with it they are an error. Throws ConfigError, beginning with `speaker`, that names every key
/// which cannot be converted and every option under `needed` of `table` that no key gives.
Value read_by_table(const std::string& json, const std::string& speaker, const Value& table,
                    const Value* common = nullptr);

/// The reverse: `ours` as a JSON object, by the same rows, added to the JSON object `begun`. Throws ConfigError,
/// beginning with "a `program`", for a value that the rows have no word for.
std::string write_by_table(const Value& ours, const Value& table, const std::string& program,
                           const Value* common = nullptr, const std::string& begun = "{}");

/// The rows under `config` of `table`, then those of `common` (may be null) for other keys.
std::vector<Value::Field> config_rows(const Value& table, const Value* common);

}  // namespace tessera
