#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "framework/indexed/indexed_dataset.h"

namespace tessera::preprocessing {

struct MergeRequest {
  std::vector<std::string> prefixes;  ///< prefixes of the datasets, in this order
  std::string output_prefix;
  bool multimodal = false;  ///< each dataset must have sequence modes
};

struct MergeResult {
  std::int64_t documents = 0, sequences = 0, tokens = 0;
  indexed::TokenType type = indexed::TokenType::uint16;
  bool modes = false;
};

/// Merges several datasets into one with all their documents, byte for byte as Megatron-LM's tools/merge_datasets.py;
/// pointers and document bounds are recomputed. Tokens of any type are copied unchanged. Sequence modes are kept if all
/// datasets have them. Memory does not grow with the datasets. Both files are written as *.unfinished and renamed at
/// the end; after an error they are deleted. Throws ConfigError if a dataset is missing or damaged, if types differ, if
/// only some datasets have modes, or if an output would overwrite an input. `progress` is called with bytes copied and
/// all bytes.
MergeResult merge_datasets(const MergeRequest& request,
                           const std::function<void(std::int64_t done, std::int64_t all)>& progress = {});

}  // namespace tessera::preprocessing
