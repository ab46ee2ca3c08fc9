#pragma once

#include <functional>

#include "framework/autograd/ops/attention.h"
#include "framework/comm/communicator.h"

namespace tessera::parallel {

/// How ranks that share a sequence exchange keys and values.
enum class BlockExchange {
  ring,   ///< each rank sends its block to the next while it computes with the present block (arXiv:2310.01889)
  gather  ///< one all-gather before the computation; gradients of keys and values are reduce-scattered
};

/// Called with each pair of chunks that is computed: the index in the sample of the first query and of the first key.
/// For tests.
using PairTap = std::function<void(std::int64_t query, std::int64_t key)>;

/// Attention over a sequence that the ranks of `group` share. Each rank has the tokens that nn::ContextRank assigns to
/// it, in zigzag order.
///
///   qkv      [B, T, ..]: this rank's tokens, in the layout of the HeadRows of `e`; e.T = e.S = T, an even number
///   visible  [B * S] queries of all ranks, S = T * group.size(), with key indices over the whole sample
///   mask     first_element belongs to this rank's first head in samples of S tokens
///   sinks    of the heads of `e`
///   result   [B, T, H D]
///
/// The keys and values of each rank form a block of two chunks. Each pair of one of the two local query chunks and one
/// key chunk is computed, unless no query of it sees a key, and merged into the result by log-sum-exp. In a ring,
/// messages make progress after each pair. The backward pass receives the keys and values again and sends their
/// gradients, in fp32, to the rank that owns them.
///
/// Keeps qkv, the result and lse [B, 2, H, T / 2] for the backward pass. `visible` and the sample ids of `mask` must
/// stay unchanged until the backward pass is done. `tap`, if not empty, is called in both passes. `qkv` must not be
/// used by another operation. Throws as attention_forward(), CommError as Communicator does, and BugError if the
/// extents do not match.
autograd::Var block_attention(const autograd::Var& qkv, const kernels::AttentionExtents& e,
                              const kernels::VisibleKeys& visible, const kernels::DropoutMask& mask,
                              const comm::Communicator& group, BlockExchange exchange,
                              const autograd::HeadSinks& sinks = {}, const PairTap& tap = {});

}  // namespace tessera::parallel
