#pragma once

#include <functional>

#include "framework/autograd/tape.h"
#include "framework/comm/communicator.h"
#include "framework/kernels/attention.h"

namespace tessera::parallel {

/// How ranks that share a sequence get each other's keys and values.
enum class BlockExchange {
  ring,   ///< from the previous rank to the next, while the block that is here is computed (arXiv:2310.01889)
  gather  ///< all at once: an all-gather; their gradients are reduce-scattered
};

/// Sees each pair of chunks that is computed, by the index in the sample of the first query and of the first key.
using PairTap = std::function<void(std::int64_t query, std::int64_t key)>;

/// Attention over a sequence that the ranks of `group` share: each has the tokens that ContextRank gives it, zigzag.
///
///   qkv      [B, T, ..]: this rank's tokens, laid out as the HeadRows of `e` say; e.T = e.S = T, an even number
///   visible  [B * S] queries, S = T * group.size(): of all ranks, with keys counted over the whole sample
///   mask     first_element is that of this rank's first head in samples of S tokens
///   result   [B, T, H D]
///
/// The keys and values of each rank come as a block. Of the two chunks of queries here and the two chunks of keys there
/// each pair is computed, unless no query of it sees a key, and joined to the result so far by log-sum-exp; in a ring
/// messages move on behind each pair. The backward pass gets the keys and values again, and sends their gradients, in
/// fp32, to the rank whose they are.
///
/// Keeps qkv, the result and lse [B, 2, H, T / 2]. `visible` and the sample ids of `mask` must stay unchanged until the
/// backward pass is done. `tap`, if there is one, is called in both passes. `qkv` must have no other use. Throws as
/// attention_forward, and CommError as Communicator does.
autograd::Var block_attention(const autograd::Var& qkv, const kernels::AttentionExtents& e,
                              const kernels::VisibleKeys& visible, const kernels::DropoutMask& mask,
                              const comm::Communicator& group, BlockExchange exchange, const PairTap& tap = {});

}  // namespace tessera::parallel
