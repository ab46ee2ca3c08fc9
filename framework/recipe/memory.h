#pragma once

#include <string>
#include <vector>

#include "framework/recipe/layout_figures.h"

namespace tessera::recipe {

/// Memory that one rank needs at least to train, by what it is for: weights, gradients and optimizer state exactly; of
/// activations, logits, position tables and data what is certainly there at once.
struct MemoryNeed {
  struct Part {
    std::string name;
    std::int64_t bytes = 0;
  };
  std::vector<Part> parts;
  /// Of a model with experts: activations that are there at once if tokens are spread evenly over the experts, and if
  /// they all choose experts of this rank; the part of that name has what is there whatever they choose. Otherwise 0.
  std::int64_t balanced_activations = 0, worst_activations = 0;
  std::int64_t bytes() const;  ///< of all; the largest number there is when they are more
};

/// "4.10 TiB at least: weights 1.00 TiB, ..., optimizer state 2.00 TiB (the largest part), ..."
std::string text_of(const MemoryNeed& need);

/// The need of the ranks of each pipeline stage, in a run of as many ranks as `layout` has.
std::vector<MemoryNeed> memory_by_stage(const Recipe& recipe, const LayoutFigures& layout);

}  // namespace tessera::recipe
