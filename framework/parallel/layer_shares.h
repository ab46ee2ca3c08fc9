#pragma once

#include "framework/parallel/layer_plan.h"

namespace tessera {

/// How many layers each chunk gets, [stage][chunk], stages without layers included. What is wrong goes to `mistakes`;
/// the result then means nothing.
std::vector<std::vector<std::int64_t>> layer_shares(const ParallelOptions& options, std::int64_t layers,
                                                    std::vector<Mistake>& mistakes);

/// One chunk of a pipeline_model_parallel_layout.
struct LayoutPart {
  bool embedding = false, loss = false;
  std::int64_t layers = 0;
};
/// The chunks in the order of the forward pass. Throws ConfigError for what is no such text. Grammar:
///     layout = item*;  item = (letter | "(" item* ")") ["*" number];  letter = E | t | L | "|";  "," and blanks:
///     nothing
std::vector<LayoutPart> read_layout(const std::string& layout);

}  // namespace tessera
