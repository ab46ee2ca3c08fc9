// The canonical form of a GPT's options: options with the same effect have the same values.

#include <algorithm>

#include "framework/model/gpt_architecture.h"

namespace tessera::model {
namespace {

template <class T>
void settle(options::Value& config, const char* key, const T& value) {
  config.set(key, options::OptionType<T>::write(value));
}

void erase(options::Value& config, std::initializer_list<const char*> names) {
  std::erase_if(config.fields, [&](const auto& field) {
    return std::any_of(names.begin(), names.end(), [&](const char* name) { return field.name == name; });
  });
}

}  // namespace

/// Options of the other kind of attention have no effect, nor those of yarn that slows nothing.
void GptArchitecture::settle_attention(options::Value& whole) const {
  const auto original = [&] { return o_.rotary_scaling(positions()).original; };
  if (!o_.multi_latent_attention) {
    erase(whole, {"q_lora_rank", "kv_lora_rank", "qk_head_dim", "qk_pos_emb_head_dim", "v_head_dim", "rope_type",
                  "rotary_scaling_factor", "mscale", "mscale_all_dim"});
    settle(whole, "kv_channels", o_.channels());
    settle(whole, "group_query_attention", true);
    settle(whole, "num_query_groups", o_.groups());
    if (o_.rope_scaling_type == nn::RotaryScaling::Kind::yarn || o_.has_longrope())
      settle(whole, "rope_scaling_attention_factor", o_.rotary_scaling(positions()).attention_factor);
    erase(whole, {"rope_scaling_mscale", "rope_scaling_mscale_all_dim"});
    if (o_.rope_scaling_type != nn::RotaryScaling::Kind::none)
      settle(whole, "rope_scaling_original_max_position_embeddings", original());
    return;
  }
  erase(whole, {"kv_channels", "group_query_attention", "num_query_groups", "rotary_percent", "rope_scaling_factor",
                "rope_scaling_low_freq_factor", "rope_scaling_high_freq_factor", "rope_scaling_attention_factor"});
  settle(whole, "position_embedding_type", PositionEmbedding::rope);
  auto factor = o_.rotary_scaling_factor;
  if (o_.rope_scaling_type == nn::RotaryScaling::Kind::yarn) {
    factor = o_.rope_scaling_factor;
    settle(whole, "rope_scaling_type", nn::RotaryScaling::Kind::none);
    settle(whole, "rotary_scaling_factor", factor);
    settle(whole, "mscale", o_.rope_scaling_mscale);
    settle(whole, "mscale_all_dim", o_.rope_scaling_mscale_all_dim);
  }
  erase(whole, {"rope_scaling_mscale", "rope_scaling_mscale_all_dim"});
  const bool slowed = o_.rope_type != LatentRope::rope && factor > 1;
  settle(whole, "rope_type", slowed ? LatentRope::yarn : LatentRope::rope);
  if (slowed)
    settle(whole, "rope_scaling_original_max_position_embeddings", original());
  else if (factor <= 1)
    erase(whole, {"rotary_scaling_factor", "mscale", "mscale_all_dim"});
}

/// moe_config of a model that has experts, with what follows from it.
options::Value GptArchitecture::settled_experts(const options::Value& moe_config) const {
  const auto& options = settings_.moe;
  auto moe = moe_config;
  settle(moe, "num_experts", std::int64_t{1});
  settle(moe, "moe_ffn_hidden_size", expert_inner());
  settle(moe, "moe_router_topk_scaling_factor", options.moe_router_topk_scaling_factor.value_or(1));
  if (options.moe_router_score_function != kernels::RouterScore::softmax) settle(moe, "moe_router_pre_softmax", false);
  const auto rule = options.router_rule(experts());
  if (rule.groups_kept >= rule.groups)
    for (const char* name : {"moe_router_num_groups", "moe_router_group_topk"}) moe.set(name, options::Value{});
  // Losses of training are not part of the model.
  if (options.balances()) moe.set("moe_router_load_balancing_type", options::Value::of("none", {}));
  settle(moe, "moe_aux_loss_coeff", 0.0);
  return moe;
}

void GptArchitecture::settle_feed_forward(options::Value& whole, const options::Value& moe_config) const {
  if (experts() == 0) return;
  std::vector<std::int64_t> layers;
  for (std::int64_t i = 0; i < o_.num_layers; ++i)
    layers.push_back(settings_.moe.moe_layer_freq.has_experts(i) ? 1 : 0);
  auto moe = settled_experts(moe_config);
  const bool all = std::find(layers.begin(), layers.end(), 0) == layers.end();
  settle(moe, "moe_layer_freq", all ? LayerFrequency{} : LayerFrequency{.list = layers});
  if (all) settle(whole, "ffn_hidden_size", expert_inner());
  settle(whole, "num_experts", experts());
  whole.set("moe_config", std::move(moe));
}

/// vision_config of a model that has a vision tower, with what follows from it. False: `resolved` has none.
bool GptArchitecture::settle_vision(options::Value& whole, const options::Value& resolved) const {
  if (!o_.has_mrope()) erase(whole, {"mrope_section", "mrope_tables_in_fp32"});
  if (!vision()) return true;
  const auto* given = resolved.find("vision_config");
  if (given == nullptr) return false;
  auto config = *given;
  settle(config, "ffn_hidden_size", vision()->inner());
  settle(config, "hidden_act", vision()->feed_forward());
  settle(config, "gated_linear_unit", false);
  erase(config, {"init_method_std", "feature_cache_path"});
  whole.set("vision_config", std::move(config));
  return true;
}

std::optional<options::Value> GptArchitecture::canonical_options(const options::Value& resolved,
                                                                 std::int64_t vocabulary) const {
  const auto *model_config = resolved.find("model_config"), *moe_config = resolved.find("moe_config");
  if (model_config == nullptr || moe_config == nullptr) return std::nullopt;
  auto whole = *model_config;
  settle(whole, "vocab_size", vocabulary);
  settle(whole, "ffn_hidden_size", o_.inner());
  settle(whole, "max_position_embeddings", positions());
  settle(whole, "hidden_act", o_.feed_forward());
  settle(whole, "qkv_has_bias", o_.qkv_bias());
  settle(whole, "out_proj_has_bias", o_.out_proj_bias());
  settle(whole, "mlp_has_bias", o_.mlp_bias());
  settle(whole, "gated_linear_unit", false);  // hidden_act says it
  settle(whole, "embedding_dropout_rate", o_.embedding_dropout());
  const auto [left, right] = o_.window();
  settle(whole, "sliding_window", left < 0 ? std::optional<std::int64_t>() : left + 1);
  settle(whole, "window_size", std::array<std::int64_t, 2>{-1, right});
  // One for each layer: a shorter list repeats.
  std::vector<LayerSight> sights;
  if (left >= 0 && !o_.layer_types.empty())
    for (std::int64_t layer = 0; layer < o_.num_layers; ++layer)
      sights.push_back(o_.windowed(layer) ? LayerSight::window : LayerSight::whole);
  settle(whole, "layer_types", sights);
  std::vector<std::int64_t> unrotated;
  for (std::int64_t layer = 0; layer < o_.num_layers; ++layer) unrotated.push_back(o_.rotates(layer) ? 0 : 1);
  if (std::find(unrotated.begin(), unrotated.end(), 1) == unrotated.end())
    whole.set("no_rope_freq", options::Value{});
  else
    settle(whole, "no_rope_freq", LayerFrequency{.list = unrotated});
  if (o_.query_pre_attn_scalar == static_cast<double>(o_.channels()))
    whole.set("query_pre_attn_scalar", options::Value{});
  if (!o_.has_alibi()) erase(whole, {"scale_alibi", "round_alibi"});
  settle(whole, "mtp_num_layers", o_.predictions());
  if (o_.score_head) settle(whole, "untie_embeddings_and_output_weights", false);  // there is none
  settle_attention(whole);
  settle_feed_forward(whole, *moe_config);
  if (!settle_vision(whole, resolved)) return std::nullopt;
  return whole;
}

}  // namespace tessera::model
