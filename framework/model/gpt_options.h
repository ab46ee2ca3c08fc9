#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "framework/model/moe_options.h"
#include "framework/nn/feed_forward.h"
#include "framework/nn/rotary_embedding.h"
#include "framework/options/schema.h"

// The words are found in the namespace of their enumeration.
namespace tessera::nn {

inline options::Words<RotaryScaling::Kind> words(RotaryScaling::Kind) {
  return {{"none", RotaryScaling::Kind::none},
          {"llama3", RotaryScaling::Kind::llama3},
          {"yarn", RotaryScaling::Kind::yarn},
          {"default", RotaryScaling::Kind::none}};
}
inline options::Words<Normalization> words(Normalization) {
  return {{"LayerNorm", Normalization::layer_norm},
          {"RMSNorm", Normalization::rms_norm},
          {"FusedRMSNorm", Normalization::rms_norm}};
}
inline options::Words<FeedForwardKind> words(FeedForwardKind) {
  using Kind = FeedForwardKind;
  return {{"gelu", Kind::gelu_tanh},
          {"gelu_erf", Kind::gelu_erf},
          {"quick_gelu", Kind::quick_gelu},
          {"silu", Kind::silu},
          {"relu", Kind::relu},
          {"squared_relu", Kind::squared_relu},
          {"swiglu", Kind::swiglu},
          {"geglu", Kind::geglu},
          {"geglu_erf", Kind::geglu_erf},
          {"quick_geglu", Kind::quick_geglu},
          {"reglu", Kind::reglu},
          {"squared_reglu", Kind::squared_reglu},
          {"gelu_tanh", Kind::gelu_tanh},
          {"fast_gelu", Kind::gelu_tanh},
          {"swish", Kind::silu},
          {"relu2", Kind::squared_relu},
          {"fused_swiglu", Kind::swiglu}};
}

}  // namespace tessera::nn

namespace tessera::model {

enum class PositionEmbedding { learned_absolute, rope, none };
inline options::Words<PositionEmbedding> words(PositionEmbedding) {
  return {{"learned_absolute", PositionEmbedding::learned_absolute},
          {"rope", PositionEmbedding::rope},
          {"none", PositionEmbedding::none},
          {"absolute", PositionEmbedding::learned_absolute}};
}

/// Attention type of a layer: full, or limited to the sliding window.
enum class LayerSight { whole, window };
inline options::Words<LayerSight> words(LayerSight) {
  return {{"full_attention", LayerSight::whole}, {"sliding_attention", LayerSight::window}};
}

enum class InitMethod { normal, xavier_uniform };
inline options::Words<InitMethod> words(InitMethod) {
  return {{"normal", InitMethod::normal}, {"xavier_uniform", InitMethod::xavier_uniform}};
}

/// Activation recomputation in the backward pass.
enum class Recomputation { none, full, selective };
inline options::Words<Recomputation> words(Recomputation) {
  return {{"none", Recomputation::none}, {"full", Recomputation::full}, {"selective", Recomputation::selective}};
}
/// Rotary embedding of multi-latent attention.
enum class LatentRope { yarn, rope };
inline options::Words<LatentRope> words(LatentRope) { return {{"yarn", LatentRope::yarn}, {"rope", LatentRope::rope}}; }
enum class RecomputedLayers { uniform, block };
inline options::Words<RecomputedLayers> words(RecomputedLayers) {
  return {{"uniform", RecomputedLayers::uniform}, {"block", RecomputedLayers::block}};
}
enum class RecomputedModule { core_attn, mlp, moe, moe_act, mla_up_proj, layernorm };
inline options::Words<RecomputedModule> words(RecomputedModule) {
  return {{"core_attn", RecomputedModule::core_attn},
          {"mlp", RecomputedModule::mlp},
          {"moe", RecomputedModule::moe},
          {"moe_act", RecomputedModule::moe_act},
          {"mla_up_proj", RecomputedModule::mla_up_proj},
          {"layernorm", RecomputedModule::layernorm}};
}

/// model_config for model_type gpt: a decoder of the GPT family is a combination of these options. describe() has the
/// meaning of each.
struct GptOptions {
  std::int64_t num_layers = 0;
  std::int64_t hidden_size = 0;
  std::int64_t num_attention_heads = 0;
  std::optional<std::int64_t> ffn_hidden_size;
  std::optional<std::int64_t> num_experts;
  std::optional<std::int64_t> kv_channels;
  bool multi_latent_attention = false;
  std::optional<std::int64_t> q_lora_rank;
  std::int64_t kv_lora_rank = 32;
  std::int64_t qk_head_dim = 128;
  std::int64_t qk_pos_emb_head_dim = 64;
  std::int64_t v_head_dim = 128;
  std::optional<LatentRope> rope_type;
  double rotary_scaling_factor = 1;
  double mscale = 1;
  double mscale_all_dim = 1;
  std::optional<std::int64_t> mtp_num_layers;
  double mtp_loss_scaling_factor = 0.1;
  std::optional<std::vector<std::string>> spec;
  bool group_query_attention = false;
  std::int64_t num_query_groups = 1;

  PositionEmbedding position_embedding_type = PositionEmbedding::learned_absolute;
  std::optional<std::int64_t> max_position_embeddings;
  double rotary_base = 10000;
  double rotary_percent = 1;
  bool rotary_interleaved = false;
  std::optional<double> rotary_seq_len_interpolation_factor;
  nn::RotaryScaling::Kind rope_scaling_type = nn::RotaryScaling::Kind::none;
  double rope_scaling_factor = 8;
  double rope_scaling_low_freq_factor = 1;
  double rope_scaling_high_freq_factor = 4;
  std::optional<std::int64_t> rope_scaling_original_max_position_embeddings;
  double rope_scaling_beta_fast = 32;
  double rope_scaling_beta_slow = 1;
  double rope_scaling_mscale = 1;
  double rope_scaling_mscale_all_dim = 0;
  std::optional<double> rope_scaling_attention_factor;

  std::array<std::int64_t, 2> window_size = {-1, 0};
  std::optional<std::int64_t> sliding_window;
  std::vector<LayerSight> layer_types;
  bool qk_layernorm = false;
  std::optional<double> query_pre_attn_scalar;
  std::optional<double> attention_logit_softcap;
  std::optional<double> output_logit_softcap;

  nn::Normalization normalization = nn::Normalization::layer_norm;
  double norm_epsilon = 1e-5;
  bool apply_layernorm_1p = false;
  bool use_sandwich_norm = false;
  double attn_post_norm_scale = 1;
  double ffn_post_norm_scale = 1;
  bool use_final_norm = true;
  bool apply_residual_connection_post_norm = false;
  bool use_parallel_residual = false;
  bool shared_parallel_norm = false;

  nn::FeedForwardKind hidden_act = nn::FeedForwardKind::gelu_tanh;
  std::optional<bool> swiglu;
  bool gated_linear_unit = false;

  bool add_bias_linear = true;
  std::optional<bool> qkv_has_bias;
  std::optional<bool> out_proj_has_bias;
  std::optional<bool> mlp_has_bias;
  bool untie_embeddings_and_output_weights = false;
  bool scale_embeddings = false;

  double hidden_dropout_rate = 0.1;
  double attention_dropout_rate = 0.1;
  double init_method_std = 0.02;
  std::optional<double> embedding_init_method_std;
  InitMethod init_method = InitMethod::normal;

  Recomputation recompute_granularity = Recomputation::none;
  std::optional<RecomputedLayers> recompute_method;
  std::optional<std::int64_t> recompute_num_layers;
  std::vector<RecomputedModule> recompute_modules = {RecomputedModule::core_attn};
  bool recompute_norm = false;
  std::optional<std::int64_t> recompute_norm_num_layers;
  bool recompute_activation_function = false;
  std::optional<std::int64_t> recompute_activation_function_num_layers;
  bool enable_recompute_layers_per_pp_rank = false;

  // Values derived from the options.
  nn::FeedForwardKind feed_forward() const;
  std::int64_t channels() const {
    return kv_channels.value_or(num_attention_heads > 0 ? hidden_size / num_attention_heads : 0);
  }
  std::int64_t groups() const { return group_query_attention ? num_query_groups : num_attention_heads; }
  /// ffn_hidden_size; default 4 h, for gated activations 8/3 h rounded down to a multiple of 64, as Megatron-LM derives
  /// it for swiglu.
  std::int64_t inner() const;
  bool qkv_bias() const { return qkv_has_bias.value_or(add_bias_linear); }
  bool out_proj_bias() const { return out_proj_has_bias.value_or(add_bias_linear); }
  bool mlp_bias() const { return mlp_has_bias.value_or(add_bias_linear); }
  /// Attention scores are divided by its square root.
  double score_scale() const { return query_pre_attn_scalar.value_or(static_cast<double>(channels())); }
  /// Rotary positions are divided by it.
  double positions_per_step() const { return rotary_seq_len_interpolation_factor.value_or(1); }
  /// Experts of each mixture of experts: num_experts, or that of moe_config if it is not 1; 0: the model has none.
  std::int64_t experts(const MoeOptions& moe) const;
  /// Rotary channels per head, an even number.
  std::int64_t rotary_dim() const;
  /// Channels per head with rotary embedding, also of multi-latent attention.
  std::int64_t rotated_channels() const { return multi_latent_attention ? qk_pos_emb_head_dim : rotary_dim(); }
  /// Whether tables of rotary embedding are needed.
  bool has_rotary() const { return multi_latent_attention || position_embedding_type == PositionEmbedding::rope; }
  /// Values per token and layer between the projections and the attention core of multi-latent attention.
  std::int64_t latent_width() const;
  /// The factor of the scores of multi-latent attention.
  double latent_scale() const;
  /// Layers of multi-token prediction.
  std::int64_t predictions() const { return mtp_num_layers.value_or(0); }
  /// RoPE frequency scaling for tables of `positions` positions.
  nn::RotaryScaling rotary_scaling(std::int64_t positions) const;
  /// Tokens to the left and to the right that a layer with sliding-window attention sees; left -1: all.
  std::array<std::int64_t, 2> window() const;
  bool windowed(std::int64_t layer) const;
  nn::NormKind norm() const { return {normalization, norm_epsilon, apply_layernorm_1p}; }
  /// Initial distribution of a weight [out, in]. `output`: the last projection of a residual branch, which is scaled by
  /// 1 / sqrt(2 num_layers).
  nn::Init weight_init(std::int64_t out, std::int64_t in, bool output) const;
  /// Initial distribution of an embedding table with `rows` rows.
  nn::Init table_init(std::int64_t rows) const;
  /// Whether selective recomputation includes `module`.
  bool recomputes(RecomputedModule module) const;
};
/// Declares the options.
void describe(options::Schema<GptOptions>& s);
/// The parts of it about multi-latent attention, multi-token prediction and activation recomputation.
void describe_latent_attention(options::Schema<GptOptions>& s);
void describe_prediction(options::Schema<GptOptions>& s);
void describe_recomputation(options::Schema<GptOptions>& s);

/// The rules that these options and those of moe_config break together; options are named with their group. Empty:
/// none.
std::vector<options::Finding> broken_rules(const GptOptions& o, const MoeOptions& moe);
/// The rule that sequences of `seq_length` tokens break; none: they fit.
std::optional<options::Finding> broken_length(const GptOptions& o, std::int64_t seq_length);
/// The rules that these options break, alone (describe) or with sequences of `seq_length` tokens. Empty: none.
std::vector<options::Finding> broken_rules(const GptOptions& o, std::int64_t seq_length);

}  // namespace tessera::model
