#pragma once

#include "framework/model/gpt_options.h"
#include "framework/nn/attention_layer.h"
#include "framework/nn/latent_attention.h"
#include "framework/nn/mixture_of_experts.h"
#include "framework/parallel/layer_plan.h"

// Derives the configuration of the parts of GPT layers from the options. `layer` is the index of a layer in the whole
// model, from 0. Layers of multi-token prediction have the indices after those of the decoder, and are configured like
// the decoder's last layer.

namespace tessera::model {

// All functions require options for which broken_rules (gpt_options.h) reports nothing, and throw nothing.

/// Whether the layer is a mixture of experts, by moe_layer_freq; false if the model has no experts. A layer of
/// multi-token prediction has experts if the last decoder layer has.
bool has_experts(const GptOptions& o, const MoeOptions& moe, std::int64_t layer);
/// Sizes of self-attention. Only the use of a sliding window depends on the layer (layer_types). `recomputed`: the
/// backward pass recomputes the attention core and linear_proj.
nn::AttentionSizes attention_sizes(const GptOptions& o, std::int64_t layer, bool recomputed);
/// Sizes of multi-latent attention, for a model with multi_latent_attention.
nn::LatentAttentionSizes latent_sizes(const GptOptions& o, bool recomputed);
/// Sizes of the feed-forward network of a layer without experts.
nn::FeedForwardSizes feed_forward_sizes(const GptOptions& o);
/// Sizes of a mixture of experts, for a layer for which has_experts() is true.
nn::ExpertSizes expert_sizes(const GptOptions& o, const MoeOptions& moe);

/// Floating-point operations of the forward and backward pass of a chunk of a GPT over `samples` sequences of
/// `seq_length` tokens (Model::flops). `vocabulary`: rows of the output layer, which the chunk with the loss has.
///
/// Counts six operations per token and weight of a matrix product (of the chosen experts only), and the products of
/// attention for the keys that each token sees: a sample is one document, with a causal mask or a sliding window.
/// Recomputation is not counted, nor, as in Megatron-LM, the matrix products of routers.
double training_flops(const GptOptions& o, const MoeOptions& moe, const parallel::ModelChunk& chunk,
                      std::int64_t vocabulary, std::int64_t samples, std::int64_t seq_length);

}  // namespace tessera::model
