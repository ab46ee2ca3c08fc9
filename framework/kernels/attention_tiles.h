#pragma once

#include "framework/kernels/attention_call.h"

namespace tessera::kernels {

// The attention kernels of the chosen instruction set. Each call runs in one thread, on one block of queries. Internal
// to this component; attention.cpp checks the arguments.

/// Writes o and lse of the queries of one block.
void attention_forward_block(const AttentionCall& call, const QueryBlock& at);

/// Writes o and lse of a single query; all operands are floats. For decoding, where a block of query_block lanes would
/// be almost empty.
void attention_forward_row(const AttentionCall& call, const QueryBlock& at);

/// Writes dq of the queries of one block, and adds their contribution to the gradients of the keys and values of their
/// group.
void attention_backward_block(const AttentionCall& call, const QueryBlock& at, KeyGradients to);

/// attention_forward and attention_backward (attention.h) with explicit register tiles `pairs` for products of bfloat16
/// pairs; null: products in fp32. For tests, which emulate tiles.
void attention_forward_by(const TileKernels* pairs, Threads& threads, const AttentionExtents& e,
                          const VisibleKeys& visible, const DropoutMask& mask, const AttentionForward& of,
                          Earlier earlier);
void attention_backward_by(const TileKernels* pairs, Threads& threads, const AttentionExtents& e,
                           const VisibleKeys& visible, const DropoutMask& mask, const AttentionBackward& of,
                           Earlier earlier);

/// Floats in a row of KeyGradients: `channels` rounded up to whole vectors of the chosen instruction set.
std::int64_t padded_channels(std::int64_t channels);

}  // namespace tessera::kernels
