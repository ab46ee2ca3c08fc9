#pragma once

#include "framework/autograd/tape.h"
#include "framework/kernels/attention.h"
#include "framework/kernels/rotary.h"

namespace tessera::autograd {

/// Tables of rotary position embedding, and the heads it applies to. All spans must outlive the tape.
struct RotaryTables {
  std::int64_t rotary_dim = 0;  ///< rotary dimensions of each head, an even number
  kernels::RotaryLayout layout = kernels::RotaryLayout::half;
  std::span<const float> cosine, sine;         ///< [positions, rotary_dim / 2]
  std::span<const std::int64_t> head_offsets;  ///< first channel of each query and key head in a row
};

/// Applies rotary position embedding to the query and key heads of a fused QKV projection, in place.
///
///   x           [B, T, (H + 2 G) D]   the only handle of its value, because the memory is overwritten; else BugError
///   positions   [B * T]               row of the tables for each token; unchanged until the backward pass is done
///
/// Keeps nothing: the backward pass rotates the gradient by the negative angle. Throws as kernels::rotary.
Var rotary(Var x, const RotaryTables& tables, std::span<const std::int32_t> positions);

/// The sinks of the heads of one attention (kernels::AttentionForward::sinks): the elements [first, first + e.H) of a
/// parameter. leaf null: none.
struct HeadSinks {
  Leaf* leaf = nullptr;
  std::int64_t first = 0;

  /// Whether the backward pass computes a gradient of them.
  bool trained() const { return leaf != nullptr && leaf->trained(); }
  /// The part of `all`, the values or gradients of the parameter, that belongs to `heads` heads; empty without sinks.
  std::span<float> part(std::span<float> all, std::int64_t heads) const;
};

/// Attention inside one fused QKV projection.
///
///   qkv      [B, T, (H + 2 G) D]   laid out as the HeadRows of `e` say
///   result   [B, T, H D]
///
/// Keeps qkv, the result and lse [B, H, T] (the log of each query's sum of exponentials). `visible` and the sample ids
/// of `mask` must stay unchanged until the backward pass is done. No other operation may use `qkv`: the backward pass
/// throws BugError if it finds another gradient. Throws as attention_forward (kernels/attention.h).
Var attention(const Var& qkv, const kernels::AttentionExtents& e, const kernels::VisibleKeys& visible,
              const kernels::DropoutMask& mask, const HeadSinks& sinks = {});

}  // namespace tessera::autograd
