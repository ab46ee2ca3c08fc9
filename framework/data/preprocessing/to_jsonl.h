#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace tessera::data {

struct ToJsonlRequest {
  std::vector<std::string> inputs;   ///< Parquet files, read in this order
  std::vector<std::string> columns;  ///< as select_parquet_column() takes them; empty: all
  std::string output;
};

struct ToJsonlResult {
  std::int64_t rows = 0;
  std::int64_t bytes = 0;  ///< of the output
};

/// Writes the rows of Parquet files as JSON lines, each as Python's json.dumps has it. The output is written as
/// <output>.unfinished and renamed at the end; after an error nothing is left and an older output stays. Throws
/// ConfigError if an input cannot be read, is not Parquet or has values that JSON does not have, or if the output would
/// overwrite an input. `progress` is told bytes of input that are read, and all.
ToJsonlResult to_jsonl(const ToJsonlRequest& request,
                       const std::function<void(std::int64_t done, std::int64_t all)>& progress = {});

}  // namespace tessera::data
