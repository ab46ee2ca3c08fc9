#include "framework/model/layer_sizes.h"

#include <algorithm>
#include <cmath>

namespace tessera::model {

bool has_experts(const GptOptions& o, const MoeOptions& moe, std::int64_t layer) {
  return o.experts(moe) > 0 && moe.moe_layer_freq.has_experts(std::min(layer, o.num_layers - 1));
}

nn::AttentionSizes attention_sizes(const GptOptions& o, std::int64_t layer, bool recomputed) {
  nn::AttentionSizes sizes;
  sizes.hidden = o.hidden_size;
  sizes.heads = o.num_attention_heads;
  sizes.groups = o.groups();
  sizes.channels = o.channels();
  sizes.qkv_bias = o.qkv_bias();
  sizes.out_bias = o.out_proj_bias();
  sizes.dropout = o.attention_dropout_rate;
  const auto queries = sizes.heads * sizes.channels;
  sizes.init = o.weight_init(queries + 2 * sizes.groups * sizes.channels, sizes.hidden, false);
  sizes.out_init = o.weight_init(sizes.hidden, queries, true);
  sizes.scale = 1 / std::sqrt(o.score_scale());
  sizes.softcap = o.attention_logit_softcap.value_or(0);
  sizes.windowed = o.windowed(layer);
  sizes.recomputed = recomputed;
  if (o.qk_layernorm) sizes.head_norm = o.norm();
  if (o.has_alibi()) sizes.alibi = {.factor = o.scale_alibi ? sizes.scale : 1, .rounded = o.round_alibi};
  sizes.sinks = o.softmax_type;
  sizes.norms_all_heads = o.qk_layernorm_all_heads;
  return sizes;
}

nn::LatentAttentionSizes latent_sizes(const GptOptions& o, bool recomputed) {
  nn::LatentAttentionSizes sizes;
  sizes.hidden = o.hidden_size;
  sizes.heads = {o.num_attention_heads, o.qk_head_dim, o.qk_pos_emb_head_dim, o.v_head_dim};
  sizes.query_rank = o.q_lora_rank;
  sizes.key_value_rank = o.kv_lora_rank;
  sizes.out_bias = o.out_proj_bias();
  sizes.dropout = o.attention_dropout_rate;
  sizes.init = nn::Init::normal(o.init_method_std);
  sizes.out_init = o.weight_init(o.hidden_size, o.num_attention_heads * o.v_head_dim, true);
  sizes.scale = o.latent_scale();
  sizes.recomputed = recomputed;
  sizes.recomputes_up = o.recomputes(RecomputedModule::mla_up_proj);
  if (o.qk_layernorm) sizes.norm = o.norm();
  return sizes;
}

nn::FeedForwardSizes feed_forward_sizes(const GptOptions& o) {
  const auto inner = o.inner(), wide = nn::is_gated(o.feed_forward()) ? 2 * inner : inner;
  return {.hidden = o.hidden_size,
          .inner = inner,
          .has_bias = o.mlp_bias(),
          .gate = o.gate(),
          .init = o.weight_init(wide, o.hidden_size, false),
          .out_init = o.weight_init(o.hidden_size, inner, true)};
}

nn::ExpertSizes expert_sizes(const GptOptions& o, const MoeOptions& moe) {
  nn::ExpertSizes sizes;
  sizes.hidden = o.hidden_size;
  sizes.inner = moe.moe_ffn_hidden_size.value_or(o.inner());
  sizes.rule = moe.router_rule(o.experts(moe));
  sizes.balance = moe.moe_router_load_balancing_type;
  sizes.aux_coefficient = moe.moe_aux_loss_coeff;
  sizes.z_coefficient = moe.moe_z_loss_coeff.value_or(0);
  sizes.capacity_factor = std::max(moe.moe_expert_capacity_factor.value_or(0), 0.0);
  sizes.drop_policy = moe.moe_token_drop_policy;
  sizes.pads_experts = moe.moe_pad_expert_input_to_capacity;
  sizes.product = moe.moe_router_dtype.value_or(nn::RouterProduct::as_layer);
  sizes.jitter = moe.moe_input_jitter_eps.value_or(0);
  sizes.forces_balance = moe.moe_router_force_load_balancing;
  sizes.has_bias = moe.moe_router_enable_expert_bias;
  sizes.router_bias = sizes.expert_bias = o.mlp_bias();
  sizes.gate = o.gate();
  sizes.weights_on_input = moe.moe_apply_probs_on_input;
  sizes.shared_inner = moe.moe_shared_expert_intermediate_size.value_or(0);
  sizes.shared_gate = moe.moe_shared_expert_gate;
  const auto wide = nn::is_gated(o.feed_forward()) ? 2 * sizes.inner : sizes.inner;
  sizes.init = o.weight_init(wide, o.hidden_size, false);
  sizes.out_init = o.weight_init(o.hidden_size, sizes.inner, true);
  return sizes;
}

namespace {

/// Multiplications in one attention layer: of the projections, per token; of scores and values, per token and visible
/// key.
struct AttentionCost {
  double projections, per_key;
};

AttentionCost attention_cost(const GptOptions& o) {
  const auto hidden = static_cast<double>(o.hidden_size), heads = static_cast<double>(o.num_attention_heads);
  if (!o.multi_latent_attention) {
    const auto attended = heads * static_cast<double>(o.channels());
    const auto qkv = static_cast<double>((o.num_attention_heads + 2 * o.groups()) * o.channels());
    return {hidden * (qkv + attended), 2 * attended};
  }
  // As Megatron-LM counts it; a norm of a compressed vector counts one multiplication per channel.
  const auto plain = static_cast<double>(o.qk_head_dim), rotated = static_cast<double>(o.qk_pos_emb_head_dim),
             value = static_cast<double>(o.v_head_dim), rank = static_cast<double>(o.kv_lora_rank);
  const auto query_rank = static_cast<double>(o.q_lora_rank.value_or(0));
  const auto queries = heads * (plain + rotated);
  const auto query = o.q_lora_rank ? query_rank * (hidden + queries + 1) : hidden * queries;
  return {query + rank * (hidden + heads * (plain + value) + 1) + hidden * rotated + heads * value * hidden,
          queries + heads * value};
}

/// Number of keys that a token sees in a layer: the mean over the `seq_length` tokens of one document. A causal layer
/// counts as seq_length / 2, as in Megatron-LM. With a window the diagonal of the scores counts as half a key too, so
/// that a window of the whole sequence gives the same number.
double mean_keys(const GptOptions& o, std::int64_t layer, std::int64_t seq_length) {
  const auto length = static_cast<double>(seq_length);
  if (!o.windowed(layer)) return length / 2;
  const auto [to_left, to_right] = o.window();
  const auto left = to_left < 0 ? length : std::min(static_cast<double>(to_left) + 1, length),
             right = std::min(static_cast<double>(to_right), length);
  return left - left * left / (2 * length) + right - right * right / (2 * length);
}

}  // namespace

double training_flops(const GptOptions& o, const MoeOptions& moe, const parallel::ModelChunk& chunk,
                      std::int64_t vocabulary, std::int64_t samples, std::int64_t seq_length) {
  const auto tokens = static_cast<double>(samples * seq_length);
  const auto hidden = static_cast<double>(o.hidden_size);
  const auto end = chunk.end_layer() + (chunk.loss ? o.predictions() : 0);
  // The router's product is not counted, as in Megatron-LM.
  const auto active = moe.moe_router_topk * moe.moe_ffn_hidden_size.value_or(o.inner()) +
                      moe.moe_shared_expert_intermediate_size.value_or(0);
  std::int64_t computed = 0, inner = 0;
  double keys = 0;
  for (auto i = chunk.first_layer; i < end; ++i) {
    if (std::find(chunk.noop.begin(), chunk.noop.end(), i) != chunk.noop.end()) continue;
    ++computed;
    keys += mean_keys(o, i, seq_length);
    inner += has_experts(o, moe, i) ? active : o.inner();
  }
  const auto attention = attention_cost(o);
  const auto layers = static_cast<double>(computed);
  const auto feed_forward = hidden * static_cast<double>(inner * (nn::is_gated(o.feed_forward()) ? 3 : 2));
  const auto predictions = static_cast<double>(o.predictions());
  const auto head =
      (predictions + 1) * hidden * static_cast<double>(vocabulary) + predictions * (3 * hidden + 2 * hidden * hidden);
  const auto products = layers * attention.projections + feed_forward + (chunk.loss ? head : 0);
  return 6 * tokens * (products + keys * attention.per_key);
}

}  // namespace tessera::model
