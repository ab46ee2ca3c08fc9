#pragma once

#include <string>
#include <vector>

#include "framework/recipe/layout_figures.h"

namespace tessera::recipe {

/// The peak of the memory of one rank in training, by what it is for. Weights, gradients, optimizer state and
/// activations are those that the run will count (metrics.jsonl) to the byte; tables and data as far as they are known
/// before it.
struct MemoryNeed {
  struct Part {
    std::string name;
    std::int64_t bytes = 0;
  };
  std::vector<Part> parts;
  /// Whether the activations do not depend on the run: false if ranks share experts, because the tokens choose, and if
  /// they could not be rehearsed in full. Then `parts` has what is there if tokens are spread evenly over the experts:
  /// some rank needs at least that.
  bool complete = true;
  /// Of ranks that share experts: activations if all tokens choose experts of other ranks, and of this one. With a
  /// capacity that a balanced load fills, it takes as much as any.
  struct {
    std::int64_t least = 0, most = 0;
  } activations_by_choices = {};
  std::string not_foreseen;    ///< why `parts` has 0 as activations; empty: it has them
  std::int64_t bytes() const;  ///< of all; the largest number there is when they are more
};

/// "4.10 TiB: weights 1.00 TiB, ..., optimizer state 2.00 TiB (the largest part), ..."; "4.10 TiB at least: ..." if it
/// is not complete.
std::string text_of(const MemoryNeed& need);

/// The need of the ranks of a pipeline stage, in a run of as many ranks as `layout` has.
MemoryNeed memory_of_stage(const Recipe& recipe, const LayoutFigures& layout, std::int64_t stage);
/// Of every stage.
std::vector<MemoryNeed> memory_by_stage(const Recipe& recipe, const LayoutFigures& layout);

}  // namespace tessera::recipe
