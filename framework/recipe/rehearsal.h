#pragma once

#include "framework/autograd/ops/router.h"
#include "framework/recipe/layout_figures.h"

namespace tessera::recipe {

/// The peak of the memory of a rank but for its state, in bytes, which a rehearsal of its training step finds: the real
/// chunks go through the real pipeline schedule, forward and backward, with threads that compute nothing
/// (kernels::Threads::Idle), groups that exchange nothing and an arena of addresses. Every operation so makes the
/// allocations of a run, and no formula repeats what the layers know. Takes neither the time of a step nor its memory.
struct RehearsedPeak {
  std::int64_t activations = 0, workspace = 0;
  std::int64_t messages = 0;  ///< if all ranks are on one host
  /// Whether a run takes exactly this: the micro-batch was rehearsed as it is. Else it has too many tokens; then the
  /// first two are extrapolated from smaller ones.
  bool exact = true;
};

/// Of the ranks of pipeline stage `stage` in the run that `layout` describes. `spread`: which experts tokens choose.
/// The model must be a "gpt". Throws Error if there are no addresses for it.
RehearsedPeak rehearsed_peak(const Recipe& recipe, const LayoutFigures& layout, std::int64_t stage,
                             autograd::AssumedChoices::Spread spread);

}  // namespace tessera::recipe
