#pragma once

#include <string>

#include "framework/options/value.h"

namespace tessera {

/// A JSON object of another program's settings, read by the rows under `config` of `table` (docs/checkpoints.md) into
/// our options; keys without a row are left alone. Throws ConfigError, beginning with `speaker`, naming every key that
/// stops it.
Value read_by_table(const std::string& json, const std::string& speaker, const Value& table);

/// The way back: `ours` by the same rows, as JSON.
std::string write_by_table(const Value& ours, const Value& table, const std::string& speaker);

}  // namespace tessera
