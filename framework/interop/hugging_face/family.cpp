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
  const bool rotary = all["position_embedding_type"] == "rope", bent = all["rope_scaling_type"] != "none";
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
  std::vector<std::string> stories;
  bool no_words = false;  ///< the family cannot even say it
  bool operator<(const Misfit& other) const {
    return std::pair(no_words, stories.size()) < std::pair(other.no_words, other.stories.size());
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

options::Value whole_model_config(const recipe::Recipe& recipe, std::int64_t vocabulary) {
  const auto* gpt = recipe.model.options<model::GptOptions>();
  const auto* resolved = recipe.resolved.find("model_config");
  if (gpt == nullptr || resolved == nullptr)
    throw ConfigError(text("model_type ", recipe.model.type, ": only a gpt has a counterpart in other programs"));
  auto whole = *resolved;
  const auto set = [&](const char* key, const auto& value) {
    whole.set(key, options::OptionType<std::decay_t<decltype(value)>>::write(value));
  };
  set("vocab_size", vocabulary);
  set("ffn_hidden_size", gpt->inner());
  set("kv_channels", gpt->channels());
  set("group_query_attention", true);
  set("num_query_groups", gpt->groups());
  const auto positions = gpt->max_position_embeddings.value_or(recipe.size.seq_length);
  set("max_position_embeddings", positions);
  set("hidden_act", gpt->feed_forward());
  set("qkv_has_bias", gpt->qkv_bias());
  set("out_proj_has_bias", gpt->out_proj_bias());
  set("mlp_has_bias", gpt->mlp_bias());
  set("gated_linear_unit", false);  // hidden_act says it
  const auto [left, right] = gpt->window();
  set("sliding_window", left < 0 ? std::optional<std::int64_t>() : left + 1);
  set("window_size", std::array<std::int64_t, 2>{-1, right});
  if (left < 0) set("layer_types", std::vector<model::LayerSight>());
  if (gpt->query_pre_attn_scalar == static_cast<double>(gpt->channels()))
    whole.set("query_pre_attn_scalar", options::Value{});
  if (const auto experts = recipe.experts(); experts > 0) {
    const auto inner = recipe.moe.moe_ffn_hidden_size.value_or(gpt->inner());
    const auto& freq = recipe.moe.moe_layer_freq;
    bool all = true;
    for (std::int64_t i = 0; i < gpt->num_layers; ++i) all = all && freq.has_experts(i);
    if (all) set("ffn_hidden_size", inner);
    set("num_experts", experts);
    auto moe = *recipe.resolved.find("moe_config");
    moe.set("num_experts", options::Value::of("1", {}));
    moe.set("moe_ffn_hidden_size", options::OptionType<std::int64_t>::write(inner));
    // Losses of training are not part of the model.
    if (recipe.moe.balances()) moe.set("moe_router_load_balancing_type", options::Value::of("none", {}));
    moe.set("moe_aux_loss_coeff", options::OptionType<double>::write(0));
    whole.set("moe_config", std::move(moe));
  }
  if (gpt->rope_scaling_type != nn::RotaryScaling::Kind::none)
    set("rope_scaling_original_max_position_embeddings", gpt->rotary_scaling(positions).original);
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
    if (found.stories.empty()) return family;
    if (nearest.empty() || found < least) {
      nearest = family;
      least = std::move(found);
    }
  }
  std::string story;
  for (const auto& one : least.stories) story += "\n  " + one;
  throw ConfigError(text("no family of Transformers computes what this model does; nearest is ", nearest, ":", story));
}

}  // namespace tessera::hugging_face
