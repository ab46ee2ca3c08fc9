#pragma once

#include <span>

#include "framework/model/gpt_options.h"
#include "framework/nn/attention_layer.h"
#include "framework/nn/latent_attention.h"
#include "framework/nn/mixture_of_experts.h"

// What the parts of a GPT's layers are, from its options. Layers are counted from 0 over the whole model; those of
// multi-token prediction follow the decoder's and are like the last of them.

namespace tessera::model {

// All functions expect options that broken_rules (gpt_options.h) has nothing against, and throw nothing.

/// Whether the layer has experts: moe_layer_freq says so, and there are some. True for a layer of multi-token
/// prediction if the last decoder layer has experts.
bool has_experts(const GptOptions& o, const MoeOptions& moe, std::int64_t layer);
/// Sizes of self-attention. Its window depends on the layer (layer_types). `recomputed`: its backward pass computes
/// attention again instead of keeping what the forward pass computed.
nn::AttentionSizes attention_sizes(const GptOptions& o, std::int64_t layer, bool recomputed);
/// Sizes of multi-latent attention, for a model with multi_latent_attention.
nn::LatentAttentionSizes latent_sizes(const GptOptions& o, bool recomputed);
/// Sizes of the feed-forward network of a layer without experts.
nn::FeedForwardSizes feed_forward_sizes(const GptOptions& o);
/// Sizes of a mixture of experts, for a layer that has_experts.
nn::ExpertSizes expert_sizes(const GptOptions& o, const MoeOptions& moe);

/// Model::flops: floating-point operations of the forward and backward pass over `samples` sequences of `seq_length`
/// tokens, without recomputation, of a GPT with `vocabulary` rows whose layers `noop` compute nothing: six per weight
/// and token, and those of attention for the keys that a token of a sample of one document sees, in its causal or
/// sliding window. The router of experts is not counted.
double training_flops(const GptOptions& o, const MoeOptions& moe, std::span<const std::int64_t> noop,
                      std::int64_t vocabulary, std::int64_t samples, std::int64_t seq_length);

}  // namespace tessera::model
