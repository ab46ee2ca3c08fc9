#pragma once

#include <string>
#include <vector>

#include "framework/recipe/layout_figures.h"

namespace tessera::recipe {

/// The peak memory of one rank in training, by purpose. Weights, gradients, optimizer state and activations are exactly
/// the bytes that the run reports in metrics.jsonl; tables and data are included as far as they are known before the
/// run.
struct MemoryNeed {
  struct Part {
    std::string name;  ///< "weights", "activations", ...
    std::int64_t bytes = 0;
  };
  std::vector<Part> parts;
  /// Bytes of frozen weights that are read where they lie in files: as the model would store them, and as they lie
  /// there. They take no memory of the process: their pages belong to the operating system's cache, and ranks of one
  /// host share them.
  std::int64_t mapped = 0, in_files = 0;
  /// Whether the activations are known exactly. False if ranks share experts, because they depend on the tokens'
  /// routing, and if the rehearsal had to extrapolate; then `parts` assumes that tokens are spread evenly over the
  /// experts: some rank needs at least that.
  bool complete = true;
  /// For ranks that share experts: bytes of activations if all tokens are routed to experts of other ranks (`least`),
  /// and to experts of this rank (`most`). With a capacity that a balanced load fills, activations do not exceed
  /// `most`.
  struct {
    std::int64_t least = 0, most = 0;
  } activations_by_choices = {};
  std::string not_foreseen;    ///< why activations are unknown and 0 in `parts`; empty: they are known
  std::int64_t bytes() const;  ///< sum of `parts`; 2^63 - 1 if the sum is larger
};

/// "4.10 TiB: weights 1.00 TiB, ..., optimizer state 2.00 TiB (the largest part), ..."; "4.10 TiB at least: ..." if it
/// is not complete.
std::string text_of(const MemoryNeed& need);

/// The memory that a rank of pipeline stage `stage` needs, in the run that `layout` describes.
MemoryNeed memory_of_stage(const Recipe& recipe, const LayoutFigures& layout, std::int64_t stage);
/// The memory that a rank of each stage needs, by stage.
std::vector<MemoryNeed> memory_by_stage(const Recipe& recipe, const LayoutFigures& layout);

}  // namespace tessera::recipe
