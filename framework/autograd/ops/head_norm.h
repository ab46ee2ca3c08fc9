#pragma once

#include "framework/autograd/tape.h"

namespace tessera {

/// Some heads of a fused projection and the norm over the channels of each.
struct HeadNorm {
  std::span<const std::int64_t> offsets;  ///< where the heads begin in a row; outlive the tape
  Leaf* gain;                             ///< [channels]
  Leaf* bias;                             ///< [channels] or nullptr
};

struct HeadNormKind {
  std::int64_t channels;
  bool centred;  ///< layernorm; else rmsnorm
  double eps;
  float gain_offset;
};

/// y = x with the query heads and the key heads of each row normalised, the rest as it is. Keeps x and the statistics
/// of each head. `x` must have no other user.
Var head_norm(const Var& x, const HeadNorm& queries, const HeadNorm& keys, const HeadNormKind& kind);

}  // namespace tessera
