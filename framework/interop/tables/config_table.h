#pragma once

#include <string>
#include <vector>

#include "framework/options/value.h"

namespace tessera::tables {

/// The rows of a table, and of the common one (may be null) for keys for which the first has no row.
class ConfigRows {
 public:
  ConfigRows(const options::Value& table, const options::Value* common);
  /// The row of a key, "rope_scaling.factor"; null if there is none.
  const options::Value* find(const std::string& key) const;
  /// Whether the key is one of `without_effect` of the common table, where "unsloth_*" stands for all that begin so.
  bool without_effect(const std::string& key) const;
  /// Whether a key is copied from the file that was read when settings are written: our options do not express it.
  bool is_carried(const std::string& key) const;
  /// Every row: those of the table, then those of the common one.
  std::vector<options::Value::Field> all() const;

 private:
  const options::Value *own_, *common_, *without_effect_;  ///< null: none. Owned by the tables
};

/// The result of read_by_table.
struct TableReading {
  options::Value ours;
  /// For people, one line each: keys that were ignored, a default that only one version of the program has.
  std::vector<std::string> notes = {};
};
/// Converts a JSON object with another program's settings to our options, by the rows under `config` of `table`
/// (docs/checkpoints.md). Rows of `common` apply to keys for which `table` has no row. Without `common`, keys without a
/// row are ignored; with it they are an error. Keys in `left_out` are treated as if they were not in the object. Throws
/// ConfigError, beginning with `speaker`, that names every key that cannot be converted, how to ignore it, and every
/// option under `needed` of `table` that no key gives.
TableReading read_by_table(const std::string& json, const std::string& speaker, const options::Value& table,
                           const options::Value* common = nullptr, const std::vector<std::string>& left_out = {});

/// The inverse of read_by_table: converts `ours` by the same rows and adds the result to the JSON object `begun`.
/// Throws ConfigError, beginning with "a `program`", for a value that the rows cannot express.
std::string write_by_table(const options::Value& ours, const options::Value& table, const std::string& program,
                           const options::Value* common = nullptr, const std::string& begun = "{}");

}  // namespace tessera::tables
