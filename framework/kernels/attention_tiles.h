#pragma once

#include "framework/kernels/attention_call.h"

namespace tessera {

// The pieces of attention in the chosen instruction set, each run by one thread. Internal to this room.

/// o and lse of up to `query_block` queries.
void attention_forward_block(const AttentionCall& call, const QueryBlock& at);

/// o and lse of one query: for decoding, where a block of lanes would stay empty.
void attention_forward_row(const AttentionCall& call, const QueryBlock& at);

/// dq of up to `query_block` queries; what they give to the keys and values of their group is added to `to`.
void attention_backward_block(const AttentionCall& call, const QueryBlock& at, KeyGradients to);

/// Floats of a padded row in KeyGradients.
std::int64_t padded_channels(std::int64_t channels);

}  // namespace tessera
