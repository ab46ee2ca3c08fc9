#pragma once

#include <array>
#include <optional>

#include "framework/autograd/ops/router.h"
#include "framework/recipe/layout_figures.h"

namespace tessera::recipe {

/// Peak memory of a rank without its state, in bytes, found by rehearsing its training step: the real chunks run
/// through the real pipeline schedule, forward and backward, with threads that compute nothing
/// (kernels::Threads::Idle), groups that exchange nothing, and an arena of addresses without memory. So every operation
/// makes the allocations of a run, and no formula duplicates the layers' knowledge. A rehearsal needs neither the time
/// nor the memory of a step.
struct RehearsedPeak {
  std::int64_t activations = 0, workspace = 0;
  std::int64_t messages = 0;  ///< message buffers, if all ranks are on one host
  /// Whether a run takes exactly this. False if the micro-batch has too many tokens to rehearse: then `activations` and
  /// `workspace` are extrapolated from smaller micro-batches. False also if an interleaved schedule has too many
  /// micro-batches: then they are those of its first ones, and the run may need more.
  bool exact = true;
};

/// Rehearses a rank of pipeline stage `stage` in the run that `layout` describes. `spread`: which experts the tokens
/// choose. The model must have towers of layers. Throws Error if a sample is too long to rehearse or the address space
/// is too small.
RehearsedPeak rehearsed_peak(const Recipe& recipe, const LayoutFigures& layout, std::int64_t stage,
                             autograd::AssumedChoices::Spread spread);

/// The image that each foreseen sample has, in patches of time, height and width: as many as a sample can have, as high
/// as one feature. Absent: the model or the data have no images.
std::optional<std::array<std::int32_t, 3>> foreseen_image(const Recipe& recipe);
/// Floating-point operations of `chunk` (Model::flops) for `samples` samples, each with foreseen_image().
double foreseen_flops(const Recipe& recipe, const model::Model& chunk, std::int64_t samples);

}  // namespace tessera::recipe
