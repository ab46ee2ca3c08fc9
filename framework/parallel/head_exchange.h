#pragma once

#include "framework/autograd/tape.h"
#include "framework/comm/communicator.h"
#include "framework/kernels/attention.h"

namespace tessera::parallel {

/// The exchange of tokens for heads around attention ("Ulysses", arXiv:2309.14509). Outside attention each of the `n`
/// ranks of a group has all heads of its tokens; inside attention it has all tokens of its heads. `contiguous`: how the
/// tokens of the group's sequence are divided, as in nn::ContextRank; inside attention they are in their order.
///
/// Rank r has the query heads [r * H / n, (r + 1) * H / n) and the G / n key/value heads of their groups; with fewer
/// groups than ranks it has a copy of one key/value head.

/// Extents and layout inside attention, equal on all ranks: B, n * T, H / n, .., rows of [group][queries, key,
/// value][channel]. Throws ShapeError unless n divides H, and divides G or is a multiple of it.
kernels::AttentionExtents extents_of_heads(const kernels::AttentionExtents& e, int ranks);

/// Maps qkv [B, T, ..] in the layout of `e` to [B, n * T, ..] in the layout of extents_of_heads(e, n). The backward
/// pass is the reverse exchange; it sums the gradients of copied heads. Throws as extents_of_heads(), and CommError as
/// Communicator does.
autograd::Var sequence_to_heads(const autograd::Var& qkv, const kernels::AttentionExtents& e,
                                const comm::Communicator& group, bool contiguous);

/// Maps the result of attention [B, n * T, H / n * D] to [B, T, H * D]; `e` is that of sequence_to_heads().
autograd::Var heads_to_sequence(const autograd::Var& heads, const kernels::AttentionExtents& e,
                                const comm::Communicator& group, bool contiguous);

}  // namespace tessera::parallel
