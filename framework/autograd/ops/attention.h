#pragma once

#include "framework/autograd/tape.h"
#include "framework/kernels/attention.h"
#include "framework/kernels/rotary.h"

namespace tessera::autograd {

/// Tables of rotary position embedding, and the heads it applies to. All spans must outlive the tape.
struct RotaryTables {
  std::int64_t rotary_dim = 0;  ///< channels rotated in each head
  kernels::RotaryLayout layout = kernels::RotaryLayout::half;
  std::span<const float> cosine, sine;         ///< [positions, rotary_dim / 2]
  std::span<const std::int64_t> head_offsets;  ///< of the query and key heads, in floats from the beginning of a row
};

/// Applies rotary position embedding to the query and key heads of a fused QKV projection, in place.
///
///   x           [B, T, (H + 2 G) D]   must have no other use (BugError), as its memory is overwritten
///   positions   [B * T]               must stay unchanged until the backward pass is done
///
/// Keeps nothing: the backward pass rotates the gradient by the negative angle.
Var rotary(Var x, const RotaryTables& tables, std::span<const std::int32_t> positions);

/// Attention inside one fused QKV projection.
///
///   qkv      [B, T, (H + 2 G) D]   laid out as the HeadRows of `e` say
///   result   [B, T, H D]
///
/// Keeps qkv, the result and lse [B, H, T]. `visible` and the sample ids of `mask` must stay unchanged until the
/// backward pass is done. `qkv` must have no other use. Throws as attention_forward (kernels/attention.h).
Var attention(const Var& qkv, const kernels::AttentionExtents& e, const kernels::VisibleKeys& visible,
              const kernels::DropoutMask& mask);

}  // namespace tessera::autograd
