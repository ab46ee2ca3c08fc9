#pragma once

#include <functional>

#include "framework/autograd/tape.h"

namespace tessera::autograd {

/// One RMS norm over the channels of all query heads, or of all key heads, of a fused projection. A rank may have some
/// of these heads only.
struct WholeNorm {
  std::span<const std::int64_t>
      offsets;         ///< first channel in a row of each head that this rank has; must outlive the tape
  std::int64_t heads;  ///< number of heads on all ranks together
  /// Whether the squares of these heads count in the sums over ranks; false: another rank has the same heads and counts
  /// them. The gradients of each copy are summands.
  bool counted;
  Leaf* gain;  ///< [offsets.size() * channels]
};

/// Settings that both norms share.
struct WholeNormKind {
  std::int64_t channels;  ///< head dimension
  double eps;             ///< added to the mean square
  float gain_offset;      ///< added to the stored gain: 1 for a zero-centred gain (apply_layernorm_1p), else 0
  /// Adds up numbers over the ranks that have the other heads, in place; called in forward and backward pass. Empty:
  /// this rank has all heads.
  std::function<void(std::span<double> numbers)> add_up = {};
};

/// y = x with all query heads of each row normalized together, and all key heads; the value heads are copied.
///
///   x, y   [B, T, (H + 2 G) channels]   y in the tape's compute type
///
/// Keeps x and the inverse root mean squares of each row. No other operation may use x: the backward pass throws
/// BugError if it finds another gradient.
Var whole_norm(const Var& x, const WholeNorm& queries, const WholeNorm& keys, const WholeNormKind& kind);

}  // namespace tessera::autograd
