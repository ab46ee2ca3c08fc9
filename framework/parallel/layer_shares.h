#pragma once

#include "framework/parallel/layer_plan.h"

namespace tessera::parallel {

/// The number of layers of each chunk, [stage][chunk], including stages without layers. Mistakes are appended to
/// `mistakes`; if there are any, the result is meaningless.
std::vector<std::vector<std::int64_t>> layer_shares(const ParallelOptions& options, std::int64_t layers,
                                                    std::vector<options::Finding>& mistakes);

/// One chunk of a pipeline_model_parallel_layout (Megatron-LM's notation).
struct LayoutPart {
  bool embedding = false, loss = false;
  std::int64_t layers = 0;
  std::int64_t predictions = 0;  ///< layers of multi-token prediction; only where the loss is
};
/// The chunks in the order of the forward pass. Throws ConfigError if the text does not follow the grammar, where
/// commas and blanks are ignored:
///
///     layout = item*
///     item   = (letter | "(" item* ")") ["*" number]
///     letter = "E" embedding | "t" transformer layer | "m" layer of multi-token prediction | "L" loss
///            | "|" end of a chunk
std::vector<LayoutPart> read_layout(const std::string& layout);

/// The mistake of a pipeline_model_parallel_layout, if there is one that can be read, whose layers of multi-token
/// prediction are not the `predictions` of the model.
std::vector<options::Finding> mistakes_of_predictions(const ParallelOptions& options, std::int64_t predictions);

}  // namespace tessera::parallel
