#pragma once

#include <span>

#include "framework/model/gpt_options.h"
#include "framework/nn/attention_layer.h"
#include "framework/nn/latent_attention.h"
#include "framework/nn/mixture_of_experts.h"

// What the parts of a GPT's layers are, from its options. Layers are counted from 0 over the whole model; those of multi-token
// prediction follow the decoder's and are like the last of them.

namespace tessera::model {

/// Whether a layer has experts.
bool has_experts(const GptOptions& o, const MoeOptions& moe, std::int64_t layer);
/// Sizes of self-attention, of multi-latent attention, of a dense feed-forward network and of a mixture of experts.
nn::AttentionSizes attention_sizes(const GptOptions& o, std::int64_t layer, bool recomputed);
nn::LatentAttentionSizes latent_sizes(const GptOptions& o, bool recomputed);
nn::FeedForwardSizes feed_forward_sizes(const GptOptions& o);
nn::ExpertSizes expert_sizes(const GptOptions& o, const MoeOptions& moe);

/// Model::flops of a GPT with `vocabulary` rows whose layers `noop` compute nothing.
double training_flops(const GptOptions& o, const MoeOptions& moe, std::span<const std::int64_t> noop,
                      std::int64_t vocabulary, std::int64_t samples, std::int64_t seq_length);

}  // namespace tessera::model
