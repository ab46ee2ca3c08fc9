#pragma once

#include <cstdint>
#include <optional>

#include "framework/nn/feed_forward.h"
#include "framework/options/schema.h"

namespace tessera {

enum class PositionEmbedding { learned_absolute, rope, none };
inline Words<PositionEmbedding> words(PositionEmbedding) {
  return {{"learned_absolute", PositionEmbedding::learned_absolute},
          {"rope", PositionEmbedding::rope},
          {"none", PositionEmbedding::none},
          {"absolute", PositionEmbedding::learned_absolute}};
}
inline Words<Normalization> words(Normalization) {
  return {{"LayerNorm", Normalization::layer_norm},
          {"RMSNorm", Normalization::rms_norm},
          {"FusedRMSNorm", Normalization::rms_norm}};
}
inline Words<FeedForwardKind> words(FeedForwardKind) {
  return {{"gelu", FeedForwardKind::gelu_tanh},      {"gelu_erf", FeedForwardKind::gelu_erf},
          {"swiglu", FeedForwardKind::swiglu},       {"gelu_tanh", FeedForwardKind::gelu_tanh},
          {"fast_gelu", FeedForwardKind::gelu_tanh}, {"fused_swiglu", FeedForwardKind::swiglu}};
}

/// model_config for model_type gpt: every decoder of the GPT family is a choice of these.
struct GptOptions {
  std::int64_t num_layers = 0;
  std::int64_t hidden_size = 0;
  std::int64_t num_attention_heads = 0;
  std::optional<std::int64_t> ffn_hidden_size;
  std::optional<std::int64_t> kv_channels;
  bool group_query_attention = false;
  std::int64_t num_query_groups = 1;

  PositionEmbedding position_embedding_type = PositionEmbedding::learned_absolute;
  std::optional<std::int64_t> max_position_embeddings;
  double rotary_base = 10000;
  double rotary_percent = 1;
  bool rotary_interleaved = false;

  Normalization normalization = Normalization::layer_norm;
  double norm_epsilon = 1e-5;
  bool apply_layernorm_1p = false;
  FeedForwardKind hidden_act = FeedForwardKind::gelu_tanh;
  std::optional<bool> swiglu;

  bool add_bias_linear = true;
  std::optional<bool> qkv_has_bias;
  std::optional<bool> out_proj_has_bias;
  std::optional<bool> mlp_has_bias;
  bool untie_embeddings_and_output_weights = false;

  double hidden_dropout_rate = 0.1;
  double attention_dropout_rate = 0.1;
  double init_method_std = 0.02;

  // What follows from the above where it is not said.
  FeedForwardKind feed_forward() const { return swiglu.value_or(false) ? FeedForwardKind::swiglu : hidden_act; }
  std::int64_t channels() const {
    return kv_channels.value_or(num_attention_heads > 0 ? hidden_size / num_attention_heads : 0);
  }
  std::int64_t groups() const { return group_query_attention ? num_query_groups : num_attention_heads; }
  /// 4 h; for swiglu 8/3 h down to a multiple of 64, as Megatron derives it.
  std::int64_t inner() const;
  std::int64_t rotary_dim() const;
};
void describe(Schema<GptOptions>& s);

/// What is wrong among these options and `seq_length`: pairs of the option to point at and the sentence. Empty when all
/// fit.
std::vector<std::pair<std::string, std::string>> contradictions(const GptOptions& o, std::int64_t seq_length);

}  // namespace tessera
