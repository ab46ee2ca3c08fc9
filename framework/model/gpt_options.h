#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "framework/model/moe_options.h"
#include "framework/nn/attention_layer.h"
#include "framework/nn/feed_forward.h"
#include "framework/nn/rotary_embedding.h"
#include "framework/options/schema.h"

// The words are found in the namespace of their enumeration.
namespace tessera::nn {

inline options::Words<RotaryScaling::Kind> words(RotaryScaling::Kind) {
  return {{"none", RotaryScaling::Kind::none},
          {"llama3", RotaryScaling::Kind::llama3},
          {"yarn", RotaryScaling::Kind::yarn},
          {"longrope", RotaryScaling::Kind::longrope},
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

inline options::Words<Sinks> words(Sinks) {
  return {{"vanilla", Sinks::none}, {"off-by-one", Sinks::zero}, {"learnable", Sinks::learnt}};
}

}  // namespace tessera::nn

namespace tessera::model {

enum class PositionEmbedding { learned_absolute, rope, mrope, alibi, none };
inline options::Words<PositionEmbedding> words(PositionEmbedding) {
  return {{"learned_absolute", PositionEmbedding::learned_absolute},
          {"rope", PositionEmbedding::rope},
          {"mrope", PositionEmbedding::mrope},
          {"alibi", PositionEmbedding::alibi},
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

/// Options of model_config for model_type gpt: every decoder of the GPT family is a combination of these options.
/// describe() has the meaning and unit of each.
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
  std::int64_t position_embedding_offset = 0;
  std::optional<std::vector<std::int64_t>> mrope_section;
  bool mrope_tables_in_fp32 = false;
  bool scale_alibi = false;
  bool round_alibi = false;
  double rotary_base = 10000;
  double rotary_percent = 1;
  bool rotary_interleaved = false;
  std::optional<double> rope_local_base_freq;
  std::optional<LayerFrequency> no_rope_freq;
  std::optional<double> rotary_seq_len_interpolation_factor;
  nn::RotaryScaling::Kind rope_scaling_type = nn::RotaryScaling::Kind::none;
  double rope_scaling_factor = 8;
  double rope_scaling_low_freq_factor = 1;
  double rope_scaling_high_freq_factor = 4;
  std::optional<std::int64_t> rope_scaling_original_max_position_embeddings;
  double rope_scaling_beta_fast = 32;
  double rope_scaling_beta_slow = 1;
  bool yarn_correction_range_round_to_int = true;
  double rope_scaling_mscale = 1;
  double rope_scaling_mscale_all_dim = 0;
  std::optional<double> rope_scaling_attention_factor;
  std::optional<std::vector<double>> rope_scaling_short_factor;
  std::optional<std::vector<double>> rope_scaling_long_factor;

  std::array<std::int64_t, 2> window_size = {-1, 0};
  std::optional<std::int64_t> sliding_window;
  std::vector<LayerSight> layer_types;
  bool qk_layernorm = false;
  nn::Sinks softmax_type = nn::Sinks::none;
  bool qk_layernorm_all_heads = false;
  std::optional<double> query_pre_attn_scalar;
  std::optional<double> attention_logit_softcap;
  std::optional<double> output_logit_softcap;

  nn::Normalization normalization = nn::Normalization::layer_norm;
  double norm_epsilon = 1e-5;
  bool apply_layernorm_1p = false;
  bool use_pre_norm = true;
  bool use_sandwich_norm = false;
  double attn_post_norm_scale = 1;
  double ffn_post_norm_scale = 1;
  bool use_final_norm = true;
  bool embed_layernorm = false;
  bool apply_residual_connection_post_norm = false;
  bool use_parallel_residual = false;
  bool shared_parallel_norm = false;

  nn::FeedForwardKind hidden_act = nn::FeedForwardKind::gelu_tanh;
  std::optional<bool> swiglu;
  bool gated_linear_unit = false;
  std::optional<double> activation_func_clamp_value;
  double glu_linear_offset = 0;

  bool add_bias_linear = true;
  std::optional<bool> qkv_has_bias;
  std::optional<bool> out_proj_has_bias;
  std::optional<bool> mlp_has_bias;
  bool untie_embeddings_and_output_weights = false;
  bool output_layer_has_bias = false;
  bool use_visual_encoder = false;
  bool score_head = false;
  bool scale_embeddings = false;
  double embedding_multiplier = 1;
  double residual_multiplier = 1;
  double output_multiplier = 1;
  std::optional<std::int64_t> embedding_padding_token;

  double hidden_dropout_rate = 0.1;
  std::optional<double> embedding_dropout_rate;
  double attention_dropout_rate = 0.1;
  double init_method_std = 0.02;
  std::optional<double> embedding_init_method_std;
  InitMethod init_method = InitMethod::normal;

  Recomputation recompute_granularity = Recomputation::none;
  std::optional<RecomputedLayers> recompute_method;
  std::optional<std::int64_t> recompute_num_layers;
  std::vector<RecomputedModule> recompute_modules = {RecomputedModule::core_attn};
  std::optional<bool> recompute_norm;  ///< null: in a model with adapters
  std::optional<std::int64_t> recompute_norm_num_layers;
  std::optional<bool> recompute_activation_function;  ///< null: in a model with adapters
  std::optional<std::int64_t> recompute_activation_function_num_layers;
  bool enable_recompute_layers_per_pp_rank = false;

  // Values derived from the options.

  /// Kind of the feed-forward network, from hidden_act, gated_linear_unit and swiglu.
  nn::FeedForwardKind feed_forward() const;
  /// Bounds and offset of a gated feed-forward network.
  kernels::GateForm gate() const { return {activation_func_clamp_value.value_or(0), glu_linear_offset}; }
  /// Head dimension: kv_channels, by default hidden_size / num_attention_heads.
  std::int64_t channels() const {
    return kv_channels.value_or(num_attention_heads > 0 ? hidden_size / num_attention_heads : 0);
  }
  /// Number of key/value groups.
  std::int64_t groups() const { return group_query_attention ? num_query_groups : num_attention_heads; }
  /// ffn_hidden_size; by default 4 * hidden_size, or for gated activations 8/3 * hidden_size rounded down to a multiple
  /// of 64, as in Megatron-LM for swiglu.
  std::int64_t inner() const;
  // Whether linear_qkv, linear_proj and the feed-forward network have biases; add_bias_linear by default.
  bool qkv_bias() const { return qkv_has_bias.value_or(add_bias_linear); }
  bool out_proj_bias() const { return out_proj_has_bias.value_or(add_bias_linear); }
  bool mlp_bias() const { return mlp_has_bias.value_or(add_bias_linear); }
  /// Attention scores are divided by the square root of this number.
  double score_scale() const { return query_pre_attn_scalar.value_or(static_cast<double>(channels())); }
  /// Positions are divided by this number before rotary embedding (linear position interpolation).
  double positions_per_step() const { return rotary_seq_len_interpolation_factor.value_or(1); }
  /// Number of experts of each mixture of experts: num_experts here, else moe_config.num_experts if it exceeds 1, else
  /// 0: the model has no experts.
  std::int64_t experts(const MoeOptions& moe) const;
  /// Rotary dimensions per head: rotary_percent of channels(). Options with an odd number are refused.
  std::int64_t rotary_dim() const;
  /// Rotary dimensions per head: qk_pos_emb_head_dim for multi-latent attention, else rotary_dim().
  std::int64_t rotated_channels() const { return multi_latent_attention ? qk_pos_emb_head_dim : rotary_dim(); }
  /// Whether the model has rotary embedding.
  bool has_rotary() const { return multi_latent_attention || rotates(); }
  /// Whether position_embedding_type is a rotary embedding, of one or of three axes.
  bool rotates() const { return position_embedding_type == PositionEmbedding::rope || has_mrope(); }
  bool has_alibi() const { return position_embedding_type == PositionEmbedding::alibi; }
  bool has_mrope() const { return position_embedding_type == PositionEmbedding::mrope; }
  /// Whether the position embedding has a table, which limits the length of sequences.
  bool limits_positions() const {
    return has_rotary() || position_embedding_type == PositionEmbedding::learned_absolute;
  }
  /// Whether mrope_section, which must be given, divides the rotary pairs of a head into three sections.
  bool sections_fit() const;
  /// Factor of the attention scores of multi-latent attention.
  double latent_scale() const;
  /// Number of layers of multi-token prediction.
  std::int64_t predictions() const { return mtp_num_layers.value_or(0); }
  /// RoPE frequency scaling for tables of `positions` positions, for sequences of up to `length` tokens, on which it
  /// depends with longrope.
  nn::RotaryScaling rotary_scaling(std::int64_t positions, std::int64_t length = 0) const;
  /// Whether rotary embedding of sequences longer than the original maximum has other frequencies.
  bool has_longrope() const { return has_rotary() && rope_scaling_type == nn::RotaryScaling::Kind::longrope; }
  /// Number of tokens to the left and to the right that a token sees in layers with sliding-window attention, itself
  /// excluded; left -1: all tokens.
  std::array<std::int64_t, 2> window() const;
  /// Whether `layer`, counted from 0, has sliding-window attention. True for every layer if layer_types is empty.
  bool windowed(std::int64_t layer) const;
  /// Whether `layer`, counted from 0, has rotary embedding, where the model has any.
  bool rotates(std::int64_t layer) const;
  /// Dropout probability after the embedding.
  double embedding_dropout() const { return embedding_dropout_rate.value_or(hidden_dropout_rate); }
  /// Factor of word embeddings.
  double embedding_factor() const;
  nn::NormKind norm() const { return {normalization, norm_epsilon, apply_layernorm_1p}; }
  /// Initial distribution of a weight [out, in]. `output`: the weight is the last projection of a residual branch,
  /// whose standard deviation is multiplied by 1 / sqrt(2 num_layers) if init_method is normal.
  nn::Init weight_init(std::int64_t out, std::int64_t in, bool output) const;
  /// Initial distribution of an embedding table with `rows` rows.
  nn::Init table_init(std::int64_t rows) const;
  /// Whether selective recomputation includes `module`.
  bool recomputes(RecomputedModule module) const;
};
/// The factor of cosines and sines that longrope derives for sequences `factor` times as long as the original maximum.
double longrope_growth(double factor, std::int64_t original);
/// Declares the options.
void describe(options::Schema<GptOptions>& s);
/// Declare the options about position embedding, multi-latent attention, multi-token prediction and activation
/// recomputation. Called by describe().
void describe_positions(options::Schema<GptOptions>& s);
void describe_latent_attention(options::Schema<GptOptions>& s);
void describe_prediction(options::Schema<GptOptions>& s);
void describe_recomputation(options::Schema<GptOptions>& s);

/// The rules between these options and those of moe_config that are violated; options are named with their group, as in
/// "moe_config.moe_router_topk". Empty: none.
std::vector<options::Finding> broken_rules(const GptOptions& o, const MoeOptions& moe);
/// The violated rule if sequences of `seq_length` tokens exceed the maximum sequence length; nullopt: they fit.
std::optional<options::Finding> broken_length(const GptOptions& o, std::int64_t seq_length);
/// The rules that these options violate, alone (rules of describe()) or with sequences of `seq_length` tokens. Empty:
/// none.
std::vector<options::Finding> broken_rules(const GptOptions& o, std::int64_t seq_length);

}  // namespace tessera::model
