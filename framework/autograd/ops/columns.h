#pragma once

#include "framework/autograd/tape.h"

namespace tessera::autograd {

// Copies of columns, that is ranges of the last dimension. Results have the type of the first argument; nothing is kept
// for the backward pass.

/// y [.., count] = columns [first, first + count) of x [.., width]. Throws ShapeError if x does not have these columns.
Var columns(const Var& x, std::int64_t first, std::int64_t count);

/// y [.., heads * count] = the first `count` channels of each head of x [.., width], which has `heads` equal heads.
Var head_columns(const Var& x, std::int64_t heads, std::int64_t count);

/// y [.., wa + wb] = [a | b] for a [.., wa] and b [.., wb] of the same type. Throws ShapeError if their rows differ.
Var side_by_side(const Var& a, const Var& b);

/// Extents of the heads of multi-head latent attention (Liu et al., arXiv:2405.04434).
struct LatentHeads {
  std::int64_t heads = 0;
  std::int64_t plain = 0;   ///< channels of a query or key without rotary embedding (qk_head_dim)
  std::int64_t rotary = 0;  ///< channels of a query or key with rotary embedding; all heads share the rotary key
  std::int64_t value = 0;   ///< channels of a value (v_head_dim)

  /// Channels of each query, key and value in the fused projection: the maximum of plain + rotary and value. Narrower
  /// ones are padded with zeros, which change neither scores nor values.
  std::int64_t width() const { return plain + rotary > value ? plain + rotary : value; }
};

/// Copies the queries, keys and values of latent attention into one fused projection [.., heads * 3 * width()]. Its
/// rows are ordered [head][query, key, value][channel], the layout of nn/attention_layer.h with one group per head.
///
///   q        [.., heads * (plain + rotary)]   each head [plain | rotary]
///   kv       [.., heads * (plain + value)]    each head [plain part of the key | value]
///   k_rotary [.., rotary]                     shared by all heads
///
/// Throws ShapeError if the extents do not match.
Var latent_heads(const Var& q, const Var& kv, const Var& k_rotary, const LatentHeads& heads);

}  // namespace tessera::autograd
