#include "framework/interop/hugging_face/config_rules.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "framework/base/json.h"
#include "framework/interop/hugging_face/converted_config.h"
#include "framework/interop/hugging_face/falcon_rules.h"
#include "framework/interop/hugging_face/window_rules.h"
#include "framework/model/gpt_options.h"
#include "framework/model/moe_options.h"
#include "framework/options/option_type.h"

namespace tessera::hugging_face {
namespace {

using options::most_experts, options::most_layers;

constexpr std::int64_t most_width = 1 << 30;
constexpr double inner_epsilon = 1e-6;

using Layers = std::vector<bool>;  ///< of each layer whether it has experts

/// "[0]*3+[1]*58"
std::string expression(const Layers& layers) {
  std::string all;
  for (std::size_t i = 0; i < layers.size();) {
    auto end = i;
    while (end < layers.size() && layers[end] == layers[i]) ++end;
    all += text(all.empty() ? "" : "+", "[", layers[i] ? 1 : 0, "]*", end - i);
    i = end;
  }
  return all;
}

void set_layers(ConvertedConfig& c, const Layers& layers) {
  if (std::find(layers.begin(), layers.end(), true) == layers.end()) {
    c.erase("num_experts");
    c.erase("moe_config");
  } else if (std::find(layers.begin(), layers.end(), false) != layers.end()) {
    c.set("moe_config.moe_layer_freq", expression(layers));
  }
}

/// The width of dense layers has no effect where every layer has experts.
Layers taken_layers(ConvertedConfig& c) {
  Layers layers(static_cast<std::size_t>(c.layers()), c.has_experts());
  model::LayerFrequency freq;
  if (const auto* value = c.find("moe_config.moe_layer_freq"); value != nullptr && c.has_experts())
    if (!model::LayerFrequency::Option::read(*value, freq) || (!freq.list.empty() && freq.list.size() != layers.size()))
      c.problem(text("moe_layer_freq is ", *value, "; 0 or 1 for each of ", layers.size(), " layers was expected"));
  for (std::size_t i = 0; i < layers.size(); ++i)
    layers[i] = c.has_experts() && freq.has_experts(static_cast<std::int64_t>(i));
  if (std::find(layers.begin(), layers.end(), false) == layers.end()) c.erase("ffn_hidden_size");
  return layers;
}

void read_dense_first(ConvertedConfig& c) {
  const auto dense = c.integer("facts.dense_layers_first", 0, most_layers).value_or(0);
  Layers layers;
  for (std::int64_t i = 0; i < c.layers(); ++i) layers.push_back(i >= dense);
  set_layers(c, layers);
}

void write_dense_first(ConvertedConfig& c) {
  const auto layers = taken_layers(c);
  const auto first = std::find(layers.begin(), layers.end(), true);
  if (std::find(first, layers.end(), false) != layers.end())
    c.problem(text("has experts in all layers behind its dense ones; moe_layer_freq is ", expression(layers)));
  c.set("facts.dense_layers_first", text(first - layers.begin()));
}

void read_every_step(ConvertedConfig& c) {
  const auto step = c.integer("facts.sparse_step", 1, most_layers).value_or(1);
  Layers layers;
  for (std::int64_t i = 0; i < c.layers(); ++i) layers.push_back((i + 1) % step == 0);
  if (const auto* dense = c.find("facts.dense_layers")) {
    const auto list = parse_json(dense->scalar);
    if (!list.is_array() || !std::all_of(list.begin(), list.end(), [](const Json& i) { return i.is_number_integer(); }))
      c.problem(text("the list of layers without experts is ", *dense, "; numbers of layers were expected"));
    for (const auto& i : list)
      if (const auto layer = i.get<std::int64_t>(); layer >= 0 && layer < c.layers())
        layers[static_cast<std::size_t>(layer)] = false;
  }
  set_layers(c, layers);
}

void write_every_step(ConvertedConfig& c) {
  const auto layers = taken_layers(c);
  auto dense = Json::array();
  for (std::size_t i = 0; i < layers.size(); ++i)
    if (!layers[i]) dense.push_back(i);
  c.set("facts.sparse_step", "1");
  c.set("facts.dense_layers", dense.dump());
}

const std::string expert_width = "moe_config.moe_ffn_hidden_size",
                  shared_width = "moe_config.moe_shared_expert_intermediate_size";

void read_shared_experts(ConvertedConfig& c) {
  const auto count = c.integer("facts.shared_experts", 0, most_experts).value_or(0);
  if (count == 0 || !c.has_experts()) return;
  const auto width = c.integer(expert_width, 1, most_width);
  if (!width) c.problem("does not give the width of an expert");
  c.set(shared_width, text(count * *width));
}

void write_shared_experts(ConvertedConfig& c) {
  if (!c.has_experts()) return;
  const auto width = c.integer(expert_width, 1, most_width).value_or(1);
  const auto shared = c.integer(shared_width, 0, most_width).value_or(0);
  if (shared == 0) c.problem("has a shared expert in every layer that has experts; this model has none");
  if (shared % width != 0)
    c.problem(text("has shared experts as wide as the others, ", width,
                   "; moe_shared_expert_intermediate_size is not a multiple of that: ", shared));
  c.set("facts.shared_experts", text(shared / width));
}

const std::string groups = "moe_config.moe_router_num_groups", groups_kept = "moe_config.moe_router_group_topk";

/// Megatron-LM adds the best moe_router_topk / moe_router_group_topk scores of a group.
void must_add_two(const ConvertedConfig& c, std::int64_t kept) {
  const auto chosen = c.integer("moe_config.moe_router_topk", 1, most_experts).value_or(1);
  if (chosen / kept != 2)
    c.problem(text("adds the best two scores of a group of experts; with ", chosen, " experts of a token and ", kept,
                   " groups, ", chosen / kept, " would be added here"));
}

void read_groups(ConvertedConfig& c) {
  const auto all = c.integer("facts.groups", 1, most_experts), kept = c.integer("facts.groups_kept", 1, most_experts);
  if (!c.has_experts() || !all || !kept || *kept >= *all) return;
  must_add_two(c, *kept);
  c.set(groups, text(*all));
  c.set(groups_kept, text(*kept));
}

void write_groups(ConvertedConfig& c) {
  const auto all = c.integer(groups, 1, most_experts).value_or(1),
             kept = c.integer(groups_kept, 1, most_experts).value_or(all);
  if (kept < all) must_add_two(c, kept);
  c.set("facts.groups", text(kept < all ? all : 1));
  c.set("facts.groups_kept", text(kept < all ? kept : 1));
}

double number(const ConvertedConfig& c, const std::string& path) {
  const auto* value = c.find(path);
  return value == nullptr ? 0 : std::strtod(value->scalar.c_str(), nullptr);
}

/// Scores are multiplied by the square of mscale_all_dim's factor there and of mscale's here.
void must_be_equal(const ConvertedConfig& c, const std::string& one, const std::string& other) {
  if (number(c, one) <= 0 || number(c, one) != number(c, other))
    c.problem(text("yarn's mscale is ", number(c, one), " and its mscale_all_dim ", number(c, other),
                   "; both must be given, equal and above 0"));
}

bool slows(const ConvertedConfig& c) { return c.says("rope_type", "yarn") && number(c, "rotary_scaling_factor") > 1; }

void read_yarn(ConvertedConfig& c) {
  if (!slows(c)) return;
  must_be_equal(c, "facts.mscale", "facts.mscale_all_dim");
  for (const std::string name : {"mscale", "mscale_all_dim"}) c.set(name, c.find("facts." + name)->scalar);
}

void write_yarn(ConvertedConfig& c) {
  if (!slows(c)) return;
  must_be_equal(c, "mscale", "mscale_all_dim");
  for (const std::string name : {"mscale", "mscale_all_dim"}) c.set("facts." + name, c.find(name)->scalar);
}

void same_norms(ConvertedConfig& c) {
  if (c.find("norm_epsilon") != nullptr && number(c, "norm_epsilon") != inner_epsilon)
    c.problem(text("the norms within its attention have epsilon ", inner_epsilon, "; the others have ",
                   number(c, "norm_epsilon"), ", and here all have one"));
}

/// Transformers uses both or neither.
void read_yarn_mscale(ConvertedConfig& c) {
  if (number(c, "facts.mscale") == 0 || number(c, "facts.mscale_all_dim") == 0) return;
  for (const std::string name : {"mscale", "mscale_all_dim"})
    c.set("rope_scaling_" + name, c.find("facts." + name)->scalar);
}

/// The attention factor is written instead.
void write_yarn_mscale(ConvertedConfig&) {}

/// The tower's feed-forward network is a number of times as wide as the tower.
void read_tower_mlp_ratio(ConvertedConfig& c) {
  const auto ratio = c.integer("facts.mlp_ratio", 1, most_width),
             width = c.integer("vision_config.hidden_size", 1, most_width);
  if (ratio && width) c.set("vision_config.ffn_hidden_size", text(*ratio * *width));
}

void write_tower_mlp_ratio(ConvertedConfig& c) {
  const auto inner = c.integer("vision_config.ffn_hidden_size", 1, most_width),
             width = c.integer("vision_config.hidden_size", 1, most_width);
  if (!inner || !width) c.problem("has a vision tower; this model has none");
  if (*inner % *width != 0)
    c.problem(text("has a vision tower whose ffn_hidden_size is a multiple of its hidden_size, ", *width,
                   "; vision_config.ffn_hidden_size is ", *inner));
  c.set("facts.mlp_ratio", text(*inner / *width));
}

void plain_heads(ConvertedConfig& c) {
  const auto channels = c.integer("kv_channels", 1, most_width),
             heads = c.integer("num_attention_heads", 1, most_width), width = c.integer("hidden_size", 1, most_width);
  if (channels && heads && width && *channels * *heads != *width)
    c.problem(text("head_dim is ", *channels, "; heads have hidden_size / num_attention_heads channels, ", *width,
                   " / ", *heads));
}

/// The shortest text that reads back as the same number.
std::string exact(double value) { return options::OptionType<double>::write(value).scalar; }

/// Granite multiplies attention scores by a number of its own.
void read_attention_multiplier(ConvertedConfig& c) {
  const auto factor = number(c, "facts.attention_multiplier");
  if (factor <= 0) c.problem(text("attention_multiplier is ", factor, "; expected a number above 0"));
  c.set("query_pre_attn_scalar", exact(1 / (factor * factor)));
}

void write_attention_multiplier(ConvertedConfig& c) {
  const auto* given = c.find("query_pre_attn_scalar");
  c.set("facts.attention_multiplier",
        exact(1 / std::sqrt(number(c, given == nullptr ? "kv_channels" : "query_pre_attn_scalar"))));
}

/// Granite divides logits.
void read_logits_scaling(ConvertedConfig& c) {
  const auto divisor = number(c, "facts.logits_scaling");
  if (divisor <= 0) c.problem(text("logits_scaling is ", divisor, "; expected a number above 0"));
  c.set("output_multiplier", exact(1 / divisor));
}

void write_logits_scaling(ConvertedConfig& c) {
  const auto* given = c.find("output_multiplier");
  c.set("facts.logits_scaling", exact(given == nullptr ? 1.0 : 1 / number(c, "output_multiplier")));
}

/// 1 stands for a layer with rotary embedding there, for one without it here.
void read_no_rope_layers(ConvertedConfig& c) {
  const auto* given = c.find("facts.no_rope_layers");
  std::vector<std::string> skipped;
  if (given != nullptr) {
    const auto list = parse_json(given->scalar);
    if (!list.is_array() || static_cast<std::int64_t>(list.size()) < c.layers())
      c.problem(text("no_rope_layers is ", *given, "; expected 0 or 1 for each of the ", c.layers(), " layers"));
    for (const auto& one : list)
      if (static_cast<std::int64_t>(skipped.size()) < c.layers()) skipped.push_back(one == 0 ? "1" : "0");
  } else {
    const auto interval = c.integer("facts.no_rope_layer_interval", 1, options::most_layers);
    if (!interval) c.problem("no_rope_layer_interval is null; expected a number of layers");
    for (std::int64_t layer = 0; layer < c.layers(); ++layer)
      skipped.emplace_back((layer + 1) % *interval == 0 ? "1" : "0");
  }
  if (std::find(skipped.begin(), skipped.end(), "1") != skipped.end()) c.set_list("no_rope_freq", skipped);
}

void write_no_rope_layers(ConvertedConfig& c) {
  const auto* skipped = c.find("no_rope_freq");
  Json words = Json::array();
  for (std::int64_t layer = 0; layer < c.layers(); ++layer)
    words.push_back(skipped != nullptr && skipped->items[static_cast<std::size_t>(layer)].scalar == "1" ? 0 : 1);
  c.set("facts.no_rope_layers", words.dump());
}

/// An OPT whose embedding has another width than its layers projects it.
void read_plain_embedding(ConvertedConfig& c) {
  const auto width = c.integer("facts.embedding_width", 1, most_width),
             hidden = c.integer("hidden_size", 1, most_width);
  if (width && hidden && *width != *hidden)
    c.problem(text("word_embed_proj_dim is ", *width, ", but hidden_size is ", *hidden,
                   ": projections of the embedding are not supported"));
}

void write_plain_embedding(ConvertedConfig& c) { c.set("facts.embedding_width", c.find("hidden_size")->scalar); }

void read_longrope(ConvertedConfig& c) {
  constexpr const char* usual = "4096";
  const auto* kind = c.find("rope_scaling_type");
  const bool bent = c.says("rope_scaling_type", "longrope");
  if (kind != nullptr && !bent && !c.says("rope_scaling_type", "none"))
    c.problem(text("the rope_type of rotary positions is ", *kind, "; this family has default and longrope"));
  if (!bent) return;
  const auto* given = c.find("facts.longrope_original");
  c.set("rope_scaling_original_max_position_embeddings", given == nullptr ? usual : given->scalar);
  const auto original = c.integer("rope_scaling_original_max_position_embeddings", 1, options::most_places);
  if (c.find("facts.longrope_factor") != nullptr && c.find("rope_scaling_attention_factor") == nullptr)
    c.set("rope_scaling_attention_factor",
          exact(model::longrope_growth(number(c, "facts.longrope_factor"), *original)));
}

/// The factor of cosines and sines is left out where Transformers derives the same.
void write_longrope(ConvertedConfig& c) {
  const auto positions = c.integer("max_position_embeddings", 1, options::most_places),
             original = c.integer("rope_scaling_original_max_position_embeddings", 1, options::most_places);
  if (!c.says("rope_scaling_type", "longrope") || !positions || !original) return;
  c.set("facts.longrope_original", text(*original));
  const auto derived =
      model::longrope_growth(static_cast<double>(*positions) / static_cast<double>(*original), *original);
  if (c.find("rope_scaling_attention_factor") != nullptr && number(c, "rope_scaling_attention_factor") == derived)
    c.erase("rope_scaling_attention_factor");
}

/// Transformers 5 takes a yarn of its own where the file says nothing about positions, Transformers 4 may take none.
void read_rope_is_given(ConvertedConfig& c) {
  const auto* type = c.find("rope_scaling_type");
  if (type == nullptr || type->origin.source.ends_with(".yaml"))  // the default of a table
    c.problem("has neither rope_parameters nor rope_scaling, which this family needs; write the model's own");
}

void write_rope_is_given(ConvertedConfig&) {}

struct Rule {
  const char* name;
  void (*read)(ConvertedConfig&);
  void (*write)(ConvertedConfig&);
};
constexpr std::array<Rule, 20> all_rules = {
    {{"experts_behind_dense_layers", read_dense_first, write_dense_first},
     {"experts_every_step", read_every_step, write_every_step},
     {"shared_experts", read_shared_experts, write_shared_experts},
     {"best_two_of_groups", read_groups, write_groups},
     {"latent_yarn", read_yarn, write_yarn},
     {"latent_norms", same_norms, same_norms},
     {"yarn_mscale", read_yarn_mscale, write_yarn_mscale},
     {"tower_mlp_ratio", read_tower_mlp_ratio, write_tower_mlp_ratio},
     {"upper_windows", read_upper_windows, write_layer_windows},
     {"alternate_windows", read_alternate_windows, write_layer_windows},
     {"plain_heads", plain_heads, plain_heads},
     {"plain_embedding", read_plain_embedding, write_plain_embedding},
     {"longrope", read_longrope, write_longrope},
     {"attention_multiplier", read_attention_multiplier, write_attention_multiplier},
     {"logits_scaling", read_logits_scaling, write_logits_scaling},
     {"no_rope_layers", read_no_rope_layers, write_no_rope_layers},
     {"periodic_windows", read_periodic_windows, write_listed_windows},
     {"rope_is_given", read_rope_is_given, write_rope_is_given},
     {"falcon_layers", read_falcon_layers, write_falcon_layers},
     {"common_window", read_common_window, write_common_window}}};

std::vector<Rule> rules_of(const options::Value& family_table) {
  std::vector<Rule> rules;
  const auto* names = family_table.find("rules");
  if (names == nullptr) return rules;
  for (const auto& name : names->items) {
    const auto* rule =
        std::find_if(all_rules.begin(), all_rules.end(), [&](const Rule& r) { return r.name == name.scalar; });
    if (rule == all_rules.end()) throw ConfigError(text(name.origin, ": no rule '", name.scalar, "'"));
    rules.push_back(*rule);
  }
  return rules;
}

}  // namespace

std::vector<std::string> without_facts(options::Value& config, const options::Value& family_table,
                                       const std::string& speaker) {
  ConvertedConfig converted(config, speaker);
  for (const auto& rule : rules_of(family_table)) rule.read(converted);
  converted.erase("facts");
  return converted.notes();
}

options::Value with_facts(options::Value config, const options::Value& family_table, const std::string& family) {
  ConvertedConfig converted(config, "a " + family);
  for (const auto& rule : rules_of(family_table)) rule.write(converted);
  return config;
}

}  // namespace tessera::hugging_face
