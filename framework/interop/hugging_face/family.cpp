#include "framework/interop/hugging_face/family.h"

#include <algorithm>
#include <map>

#include "framework/interop/hugging_face/hugging_face.h"
#include "framework/interop/hugging_face/hugging_face_export.h"
#include "framework/model/gpt_options.h"
#include "framework/recipe/imported_recipe.h"

namespace tessera::hugging_face {
namespace {

/// "fa_config.pre_tokens" -> its text, for every option.
void flatten(const options::Value& value, const std::string& path, std::map<std::string, std::string>& out) {
  if (value.kind != options::Value::Kind::group) {
    out[path] = text(value);
    return;
  }
  for (const auto& [name, field] : value.fields) flatten(field, path.empty() ? name : path + "." + name, out);
}

std::map<std::string, std::string> options_of(const options::Value& model_config, const options::Value& not_compared) {
  std::map<std::string, std::string> all;
  flatten(model_config, "", all);
  const bool rotary = all["position_embedding_type"] == "rope";
  const bool bent = all["rope_scaling_type"] != "none" || all["rope_type"] == "yarn";
  for (auto at = all.begin(); at != all.end();) {
    const auto begins = [&](const std::string& start) { return at->first.rfind(start, 0) == 0; };
    const bool skipped = std::any_of(not_compared.items.begin(), not_compared.items.end(),
                                     [&](const auto& item) { return begins(item.scalar); }) ||
                         (!rotary && (begins("rotary_") || begins("rope_"))) || (!bent && begins("rope_scaling_"));
    at = skipped ? all.erase(at) : std::next(at);
  }
  return all;
}

std::vector<std::string> differences(const std::map<std::string, std::string>& ours,
                                     const std::map<std::string, std::string>& theirs) {
  std::vector<std::string> found;
  for (const auto& [key, value] : ours) {
    const auto other = theirs.find(key);
    if (other == theirs.end() || other->second != value)
      found.push_back(text(key, " is ", value, ", there it would be ", other == theirs.end() ? "null" : other->second));
  }
  return found;
}

/// What a family would make of it otherwise; nothing when it fits.
struct Misfit {
  std::vector<std::string> messages;
  bool no_words = false;  ///< the family cannot even say it
  bool operator<(const Misfit& other) const {
    return std::pair(no_words, messages.size()) < std::pair(other.no_words, other.messages.size());
  }
};
Misfit misfits(const options::Value& whole, const std::string& family, std::int64_t vocabulary,
               const recipe::Registries& registries, const options::Mappings& mappings) {
  const auto common = mappings.table("models/common.yaml");
  const auto* not_compared = common.find("not_compared");
  must(not_compared != nullptr, "models/common.yaml says what is not compared");
  try {
    const auto words = write_hugging_face_config(whole, family, DType::float32, "", mappings);
    const auto back = parse_hugging_face_config(words, text("config.json of a ", family), mappings);
    const auto recipe = recipe::imported_recipe(recipe_with(back.model_config), {}, registries);
    return {differences(options_of(whole, *not_compared),
                        options_of(whole_model_config(recipe, vocabulary), *not_compared))};
  } catch (const ConfigError& error) {
    return {{error.what()}, true};
  }
}

}  // namespace

namespace {

template <class T>
void set(options::Value& config, const char* key, const T& value) {
  config.set(key, options::OptionType<T>::write(value));
}

void erase(options::Value& config, std::initializer_list<const char*> names) {
  std::erase_if(config.fields, [&](const auto& field) {
    return std::any_of(names.begin(), names.end(), [&](const char* name) { return field.name == name; });
  });
}

/// Options of the other kind of attention have no effect, nor those of yarn that slows nothing.
void say_attention(options::Value& whole, const model::GptOptions& gpt, std::int64_t positions) {
  if (!gpt.multi_latent_attention) {
    erase(whole, {"q_lora_rank", "kv_lora_rank", "qk_head_dim", "qk_pos_emb_head_dim", "v_head_dim", "rope_type",
                  "rotary_scaling_factor", "mscale", "mscale_all_dim"});
    set(whole, "kv_channels", gpt.channels());
    set(whole, "group_query_attention", true);
    set(whole, "num_query_groups", gpt.groups());
    if (gpt.rope_scaling_type == nn::RotaryScaling::Kind::yarn)
      set(whole, "rope_scaling_attention_factor", gpt.rotary_scaling(positions).attention_factor);
    erase(whole, {"rope_scaling_mscale", "rope_scaling_mscale_all_dim"});
    if (gpt.rope_scaling_type != nn::RotaryScaling::Kind::none)
      set(whole, "rope_scaling_original_max_position_embeddings", gpt.rotary_scaling(positions).original);
    return;
  }
  erase(whole, {"kv_channels", "group_query_attention", "num_query_groups", "rotary_percent", "rope_scaling_factor",
                "rope_scaling_low_freq_factor", "rope_scaling_high_freq_factor", "rope_scaling_attention_factor"});
  set(whole, "position_embedding_type", model::PositionEmbedding::rope);
  auto factor = gpt.rotary_scaling_factor;
  if (gpt.rope_scaling_type == nn::RotaryScaling::Kind::yarn) {
    factor = gpt.rope_scaling_factor;
    set(whole, "rope_scaling_type", nn::RotaryScaling::Kind::none);
    set(whole, "rotary_scaling_factor", factor);
    set(whole, "mscale", gpt.rope_scaling_mscale);
    set(whole, "mscale_all_dim", gpt.rope_scaling_mscale_all_dim);
  }
  erase(whole, {"rope_scaling_mscale", "rope_scaling_mscale_all_dim"});
  const bool slowed = gpt.rope_type != model::LatentRope::rope && factor > 1;
  set(whole, "rope_type", slowed ? model::LatentRope::yarn : model::LatentRope::rope);
  if (slowed)
    set(whole, "rope_scaling_original_max_position_embeddings", gpt.rotary_scaling(positions).original);
  else if (factor <= 1)
    erase(whole, {"rotary_scaling_factor", "mscale", "mscale_all_dim"});
}

/// moe_config of a model that has experts, with what follows from it.
options::Value said_of_experts(const recipe::Recipe& recipe, const model::GptOptions& gpt) {
  const auto& options = recipe.moe;
  auto moe = *recipe.resolved.find("moe_config");
  set(moe, "num_experts", std::int64_t{1});
  set(moe, "moe_ffn_hidden_size", options.moe_ffn_hidden_size.value_or(gpt.inner()));
  set(moe, "moe_router_topk_scaling_factor", options.moe_router_topk_scaling_factor.value_or(1));
  if (options.moe_router_score_function != kernels::RouterScore::softmax) set(moe, "moe_router_pre_softmax", false);
  if (options.router_rule(recipe.experts()).groups_kept >= options.router_rule(recipe.experts()).groups)
    for (const char* name : {"moe_router_num_groups", "moe_router_group_topk"}) moe.set(name, options::Value{});
  // Losses of training are not part of the model.
  if (options.balances()) moe.set("moe_router_load_balancing_type", options::Value::of("none", {}));
  set(moe, "moe_aux_loss_coeff", 0.0);
  return moe;
}

void say_experts(options::Value& whole, const recipe::Recipe& recipe, const model::GptOptions& gpt) {
  const auto experts = recipe.experts();
  if (experts == 0) return;
  std::vector<std::int64_t> layers;
  for (std::int64_t i = 0; i < gpt.num_layers; ++i) layers.push_back(recipe.moe.moe_layer_freq.has_experts(i) ? 1 : 0);
  auto moe = said_of_experts(recipe, gpt);
  const bool all = std::find(layers.begin(), layers.end(), 0) == layers.end();
  set(moe, "moe_layer_freq", all ? model::LayerFrequency{} : model::LayerFrequency{.list = layers});
  if (all) set(whole, "ffn_hidden_size", recipe.moe.moe_ffn_hidden_size.value_or(gpt.inner()));
  set(whole, "num_experts", experts);
  whole.set("moe_config", std::move(moe));
}

}  // namespace

options::Value whole_model_config(const recipe::Recipe& recipe, std::int64_t vocabulary) {
  const auto* gpt = recipe.model.options<model::GptOptions>();
  const auto* resolved = recipe.resolved.find("model_config");
  if (gpt == nullptr || resolved == nullptr)
    throw ConfigError(text("model_type ", recipe.model.type, ": only a gpt has a counterpart in other programs"));
  auto whole = *resolved;
  set(whole, "vocab_size", vocabulary);
  set(whole, "ffn_hidden_size", gpt->inner());
  const auto positions = gpt->max_position_embeddings.value_or(recipe.size.seq_length);
  set(whole, "max_position_embeddings", positions);
  set(whole, "hidden_act", gpt->feed_forward());
  set(whole, "qkv_has_bias", gpt->qkv_bias());
  set(whole, "out_proj_has_bias", gpt->out_proj_bias());
  set(whole, "mlp_has_bias", gpt->mlp_bias());
  set(whole, "gated_linear_unit", false);  // hidden_act says it
  const auto [left, right] = gpt->window();
  set(whole, "sliding_window", left < 0 ? std::optional<std::int64_t>() : left + 1);
  set(whole, "window_size", std::array<std::int64_t, 2>{-1, right});
  // One for each layer: a shorter list repeats, those of other programs do not.
  std::vector<model::LayerSight> sights;
  if (left >= 0 && !gpt->layer_types.empty())
    for (std::int64_t layer = 0; layer < gpt->num_layers; ++layer)
      sights.push_back(gpt->windowed(layer) ? model::LayerSight::window : model::LayerSight::whole);
  set(whole, "layer_types", sights);
  if (gpt->query_pre_attn_scalar == static_cast<double>(gpt->channels()))
    whole.set("query_pre_attn_scalar", options::Value{});
  set(whole, "mtp_num_layers", gpt->predictions());
  say_attention(whole, *gpt, positions);
  say_experts(whole, recipe, *gpt);
  return whole;
}

std::string family_that_fits(const recipe::Recipe& recipe, std::int64_t vocabulary,
                             const std::vector<std::string>& candidates, const recipe::Registries& registries,
                             const options::Mappings& mappings) {
  const auto whole = whole_model_config(recipe, vocabulary);
  std::string nearest;
  Misfit least;
  for (const auto& family : candidates) {
    auto found = misfits(whole, family, vocabulary, registries, mappings);
    if (found.messages.empty()) return family;
    if (nearest.empty() || found < least) {
      nearest = family;
      least = std::move(found);
    }
  }
  std::string message;
  for (const auto& one : least.messages) message += "\n  " + one;
  throw ConfigError(
      text("no model_type of Transformers computes what this model does; the nearest is ", nearest, ":", message));
}

}  // namespace tessera::hugging_face
