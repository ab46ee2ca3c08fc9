#pragma once

#include "framework/autograd/tape.h"

namespace tessera::autograd {

/// The norm (QK norm) over the channels of some heads of a fused projection.
struct HeadNorm {
  std::span<const std::int64_t> offsets;  ///< of the heads in a row, in floats; must outlive the tape
  Leaf* gain;                             ///< [channels], shared by these heads
  Leaf* bias;                             ///< [channels], or nullptr: no bias
};

/// What the norms of the query heads and of the key heads have in common; see kernels/norm.h.
struct HeadNormKind {
  std::int64_t channels;
  bool centred;       ///< layer norm; false: RMS norm
  double eps;         ///< added to the variance or mean square
  float gain_offset;  ///< 1: the stored gain is 0 where the factor is 1 (apply_layernorm_1p); else 0
};

/// y = x with the query heads and the key heads of each row normalized; the value heads are copied.
///
///   x, y   [B, T, (H + 2 G) channels]   x must have no other use (BugError)
///
/// Keeps x, and the mean and inverse deviation of each head.
Var head_norm(const Var& x, const HeadNorm& queries, const HeadNorm& keys, const HeadNormKind& kind);

}  // namespace tessera::autograd
