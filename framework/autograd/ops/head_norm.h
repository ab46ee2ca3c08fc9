#pragma once

#include "framework/autograd/tape.h"

namespace tessera::autograd {

/// A norm (QK norm) over the channels of each of some heads of a fused projection.
struct HeadNorm {
  std::span<const std::int64_t> offsets;  ///< first channel of each head in a row; must outlive the tape
  Leaf* gain;                             ///< [channels], shared by these heads
  Leaf* bias;                             ///< [channels], or nullptr: no bias
};

/// Settings that the norms of the query heads and of the key heads share; kernels/norm.h has the formulas.
struct HeadNormKind {
  std::int64_t channels;  ///< head dimension
  bool centred;           ///< true: layer norm; false: RMS norm
  double eps;             ///< added to the variance or mean square
  float gain_offset;      ///< added to the stored gain: 1 for a zero-centred gain (apply_layernorm_1p), else 0
};

/// y = x with the query heads and the key heads of each row normalized; the value heads are copied.
///
///   x, y   [B, T, (H + 2 G) channels]   y in the tape's compute type
///
/// Keeps x, and the mean and inverse standard deviation of each head. No other operation may use x: the backward pass
/// throws BugError if it finds another gradient.
Var head_norm(const Var& x, const HeadNorm& queries, const HeadNorm& keys, const HeadNormKind& kind);

}  // namespace tessera::autograd
