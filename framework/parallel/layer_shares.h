#pragma once

#include "framework/parallel/layer_plan.h"

namespace tessera::parallel {

/// Returns the number of layers of each chunk, [stage][chunk], including stages without layers. Appends what is wrong
/// with the options to `mistakes`; if there is anything, the result is meaningless.
std::vector<std::vector<std::int64_t>> layer_shares(const ParallelOptions& options, const Towers& towers,
                                                    std::vector<options::Finding>& mistakes);

/// One chunk of a pipeline_model_parallel_layout (Megatron-LM's notation).
struct LayoutPart {
  bool embedding = false, loss = false;
  std::int64_t layers = 0;       ///< transformer layers
  std::int64_t predictions = 0;  ///< layers of multi-token prediction; only in the chunk with the loss
};
/// Returns the chunks in the order of the forward pass. Throws ConfigError if the text does not follow this grammar, in
/// which commas and blanks are ignored:
///
///     layout = item*
///     item   = (letter | "(" item* ")") ["*" number]
///     letter = "E" embedding | "t" transformer layer | "m" layer of multi-token prediction | "L" loss
///            | "|" end of a chunk
std::vector<LayoutPart> read_layout(const std::string& layout);

/// Returns a mistake if pipeline_model_parallel_layout is valid but does not have `predictions` layers of multi-token
/// prediction, the number of the model.
std::vector<options::Finding> mistakes_of_predictions(const ParallelOptions& options, std::int64_t predictions);

}  // namespace tessera::parallel
