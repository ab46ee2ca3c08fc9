#pragma once

#include "framework/autograd/tape.h"
#include "framework/comm/communicator.h"
#include "framework/kernels/attention.h"

namespace tessera::parallel {

/// The exchange of tokens for heads around attention ("Ulysses", arXiv:2309.14509): before it each of the `n` ranks of
/// a group has all heads of its tokens, inside it all tokens of its heads. `contiguous` says how the tokens of the
/// group's sequence are divided, as in ContextRank; inside they are in their order.
///
/// Rank r has the query heads [r * H / n, (r + 1) * H / n) and the key and value heads of their groups: G / n of them,
/// or with fewer groups than ranks a copy of one.

/// Extents and layout inside, for all ranks alike: B, n * T, H / n, .., rows of [group][queries, key, value][channel].
/// n must divide H, and divide G or be a multiple of it (ShapeError).
kernels::AttentionExtents extents_of_heads(const kernels::AttentionExtents& e, int ranks);

/// qkv [B, T, ..], laid out as `e` says, to [B, n * T, ..], laid out as extents_of_heads(e, n) says. The backward pass
/// is the reverse exchange; the gradients of copies are summed.
autograd::Var sequence_to_heads(const autograd::Var& qkv, const kernels::AttentionExtents& e,
                                const comm::Communicator& group, bool contiguous);

/// The result of attention [B, n * T, H / n * D] to [B, T, H * D]; `e` is that of sequence_to_heads.
autograd::Var heads_to_sequence(const autograd::Var& heads, const kernels::AttentionExtents& e,
                                const comm::Communicator& group, bool contiguous);

}  // namespace tessera::parallel
