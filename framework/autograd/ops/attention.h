#pragma once

#include "framework/autograd/tape.h"
#include "framework/kernels/attention.h"
#include "framework/kernels/rotary.h"

namespace tessera {

/// Cosines and sines [positions, rotary_dim / 2] and the heads that turn; all outlive the tape.
struct RotaryTables {
  std::int64_t rotary_dim = 0;
  RotaryLayout layout = RotaryLayout::half;
  std::span<const float> cosine, sine;
  std::span<const std::int64_t> head_offsets;  ///< of the query and key heads in a row of the fused projection
};

/// Turn the query and key heads of a fused projection x [B, T, (H + 2 G) D] in place. `x` must have no other user.
/// `positions` [B * T] stays until the backward pass is done.
Var rotary(Var x, const RotaryTables& tables, std::span<const std::int32_t> positions);

/// Attention inside one fused projection qkv [B, T, (H + 2 G) D], laid out as `e` says; gives [B, T, H D]. Keeps qkv,
/// the output and its log-sum-exp. `visible` and the mask's sample ids stay until the backward pass is done.
Var attention(const Var& qkv, const AttentionExtents& e, const VisibleKeys& visible, const DropoutMask& mask);

}  // namespace tessera
