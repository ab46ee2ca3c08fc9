#pragma once

#include "framework/autograd/tape.h"

namespace tessera::autograd {

// Parts of the last dimension. Results have the type of x; nothing is kept for the backward pass.

/// y [.., count] = columns [first, first + count) of x [.., width]. Throws ShapeError if they leave x.
Var columns(const Var& x, std::int64_t first, std::int64_t count);

/// y [.., heads * count] = the first `count` channels of each of the `heads` equal heads of x.
Var head_columns(const Var& x, std::int64_t heads, std::int64_t count);

/// y [.., wa + wb] = [a | b] for a [.., wa] and b [.., wb] of the same type. Throws ShapeError if their rows differ.
Var side_by_side(const Var& a, const Var& b);

/// The heads of multi-head latent attention (Liu et al., arXiv:2405.04434).
struct LatentHeads {
  std::int64_t heads = 0;
  std::int64_t plain = 0;   ///< channels of a query or key without rotary embedding
  std::int64_t rotary = 0;  ///< channels with rotary embedding; of keys they are the same for all heads
  std::int64_t value = 0;   ///< channels of a value

  /// Channels of each query, key and value in the fused projection: the widest of them, the others are padded with
  /// zeros, which change neither scores nor values.
  std::int64_t width() const { return plain + rotary > value ? plain + rotary : value; }
};

/// One fused projection [.., heads * 3 * width()], with rows ordered [head][query, key, value][channel], as
/// nn/attention_layer.h has it for one group a head, from what latent attention computes:
///
///   q        [.., heads * (plain + rotary)]   each head [plain | rotary]
///   kv       [.., heads * (plain + value)]    each head [plain part of the key | value]
///   k_rotary [.., rotary]                     shared by all heads
///
/// Throws ShapeError if the extents do not match.
Var latent_heads(const Var& q, const Var& kv, const Var& k_rotary, const LatentHeads& heads);

}  // namespace tessera::autograd
