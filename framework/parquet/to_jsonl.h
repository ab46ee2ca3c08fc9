#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace tessera::parquet {

struct ToJsonlRequest {
  std::vector<std::string> inputs;   ///< Parquet files, read in this order
  std::vector<std::string> columns;  ///< names as in select_parquet_column(); empty: all
  std::string output;
};

struct ToJsonlResult {
  std::int64_t rows = 0;
  std::int64_t bytes = 0;  ///< size of the output
};

/// Writes the rows of Parquet files as JSON lines, each as Python's json.dumps writes it. The output is written as
/// <output>.unfinished and renamed at the end; after an error it is deleted and an older output is unchanged. Throws
/// ConfigError if an input cannot be read, is not Parquet or has values that JSON does not have, or if the output would
/// overwrite an input. `progress` is called with input bytes read and all input bytes.
ToJsonlResult to_jsonl(const ToJsonlRequest& request,
                       const std::function<void(std::int64_t done, std::int64_t all)>& progress = {});

}  // namespace tessera::parquet
