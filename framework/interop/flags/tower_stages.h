#pragma once

#include <cstdint>
#include <string>

namespace tessera::flags {

/// How many layers of one model each pipeline stage has, in the words of a JSON file.
struct StageLayers {
  std::string key;          ///< for messages: "text_decoder.pipeline_num_layers"
  std::string words;        ///< "1, 10, 10, 7"; with virtual stages "[1, 2], [3, 4]", [chunk][stage]
  std::int64_t layers = 0;  ///< of the whole model
};

struct AddedStages {
  std::string list;         ///< parallel_config.num_layer_list, [stage][chunk]: "[[33], [10], [10], [7]]"
  std::int64_t chunks = 1;  ///< of each stage
};

/// The layers of a tower and of the model behind it in one list, as our pipelines number them: the tower's first.
/// Throws ConfigError if an item is no number of layers, a list does not have `stages` items for each chunk, the lists
/// have different numbers of chunks, a sum is not the number of layers, or the second model begins before the tower
/// ends.
AddedStages added_stages(const StageLayers& tower, const StageLayers& model, std::int64_t stages);

}  // namespace tessera::flags
