#include "framework/interop/hugging_face/config_rules.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "framework/base/error.h"
#include "framework/model/moe_options.h"
#include "framework/options/limits.h"

namespace tessera::hugging_face {
namespace {

using Json = nlohmann::json;

using options::most_experts, options::most_layers;

constexpr std::int64_t most_width = 1 << 30;
constexpr double inner_epsilon = 1e-6;

/// A model's configuration while rules convert it.
class Converted {
 public:
  Converted(options::Value& config, const std::string& speaker) : config_(config), speaker_(speaker) {}

  const options::Value* find(const std::string& path) const {
    const auto* value = config_.at(path);
    return value == nullptr || value->kind == options::Value::Kind::none ? nullptr : value;
  }
  std::optional<std::int64_t> integer(const std::string& path, std::int64_t least, std::int64_t most) const {
    const auto* value = find(path);
    if (value == nullptr) return std::nullopt;
    std::int64_t number = 0;
    const auto* end = value->scalar.data() + value->scalar.size();
    const auto [stop, error] = std::from_chars(value->scalar.data(), end, number);
    if (error != std::errc{} || stop != end || number < least || number > most)
      problem(text(name_of(path), " is ", *value, "; expected an integer from ", least, " to ", most));
    return number;
  }
  std::int64_t layers() const { return integer("num_layers", 1, most_layers).value_or(1); }
  bool has_experts() const { return integer("num_experts", 0, most_experts).value_or(0) > 0; }
  bool says(const std::string& path, const char* word) const {
    const auto* value = find(path);
    return value != nullptr && value->scalar == word;
  }

  void set(const std::string& path, const std::string& words) {
    config_.set(path, options::Value::of(words, {speaker_, 0, "", 1}));
  }
  void erase(const std::string& name) {
    std::erase_if(config_.fields, [&](const auto& field) { return field.name == name; });
  }
  [[noreturn]] void problem(const std::string& message) const { throw ConfigError(text(speaker_, ": ", message)); }

 private:
  static std::string name_of(const std::string& path) { return path.substr(path.rfind('.') + 1); }

  options::Value& config_;
  std::string speaker_;
};

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

void set_layers(Converted& c, const Layers& layers) {
  if (std::find(layers.begin(), layers.end(), true) == layers.end()) {
    c.erase("num_experts");
    c.erase("moe_config");
  } else if (std::find(layers.begin(), layers.end(), false) != layers.end()) {
    c.set("moe_config.moe_layer_freq", expression(layers));
  }
}

/// The width of dense layers has no effect where every layer has experts.
Layers taken_layers(Converted& c) {
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

void read_dense_first(Converted& c) {
  const auto dense = c.integer("facts.dense_layers_first", 0, most_layers).value_or(0);
  Layers layers;
  for (std::int64_t i = 0; i < c.layers(); ++i) layers.push_back(i >= dense);
  set_layers(c, layers);
}

void write_dense_first(Converted& c) {
  const auto layers = taken_layers(c);
  const auto first = std::find(layers.begin(), layers.end(), true);
  if (std::find(first, layers.end(), false) != layers.end())
    c.problem(text("has experts in all layers behind its dense ones; moe_layer_freq is ", expression(layers)));
  c.set("facts.dense_layers_first", text(first - layers.begin()));
}

void read_every_step(Converted& c) {
  const auto step = c.integer("facts.sparse_step", 1, most_layers).value_or(1);
  Layers layers;
  for (std::int64_t i = 0; i < c.layers(); ++i) layers.push_back((i + 1) % step == 0);
  if (const auto* dense = c.find("facts.dense_layers")) {
    const auto list = Json::parse(dense->scalar, nullptr, false);
    if (!list.is_array() || !std::all_of(list.begin(), list.end(), [](const Json& i) { return i.is_number_integer(); }))
      c.problem(text("the list of layers without experts is ", *dense, "; numbers of layers were expected"));
    for (const auto& i : list)
      if (const auto layer = i.get<std::int64_t>(); layer >= 0 && layer < c.layers())
        layers[static_cast<std::size_t>(layer)] = false;
  }
  set_layers(c, layers);
}

void write_every_step(Converted& c) {
  const auto layers = taken_layers(c);
  auto dense = Json::array();
  for (std::size_t i = 0; i < layers.size(); ++i)
    if (!layers[i]) dense.push_back(i);
  c.set("facts.sparse_step", "1");
  c.set("facts.dense_layers", dense.dump());
}

const std::string expert_width = "moe_config.moe_ffn_hidden_size",
                  shared_width = "moe_config.moe_shared_expert_intermediate_size";

void read_shared_experts(Converted& c) {
  const auto count = c.integer("facts.shared_experts", 0, most_experts).value_or(0);
  if (count == 0 || !c.has_experts()) return;
  const auto width = c.integer(expert_width, 1, most_width);
  if (!width) c.problem("does not give the width of an expert");
  c.set(shared_width, text(count * *width));
}

void write_shared_experts(Converted& c) {
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
void must_add_two(const Converted& c, std::int64_t kept) {
  const auto chosen = c.integer("moe_config.moe_router_topk", 1, most_experts).value_or(1);
  if (chosen / kept != 2)
    c.problem(text("adds the best two scores of a group of experts; with ", chosen, " experts of a token and ", kept,
                   " groups, ", chosen / kept, " would be added here"));
}

void read_groups(Converted& c) {
  const auto all = c.integer("facts.groups", 1, most_experts), kept = c.integer("facts.groups_kept", 1, most_experts);
  if (!c.has_experts() || !all || !kept || *kept >= *all) return;
  must_add_two(c, *kept);
  c.set(groups, text(*all));
  c.set(groups_kept, text(*kept));
}

void write_groups(Converted& c) {
  const auto all = c.integer(groups, 1, most_experts).value_or(1),
             kept = c.integer(groups_kept, 1, most_experts).value_or(all);
  if (kept < all) must_add_two(c, kept);
  c.set("facts.groups", text(kept < all ? all : 1));
  c.set("facts.groups_kept", text(kept < all ? kept : 1));
}

double number(const Converted& c, const std::string& path) {
  const auto* value = c.find(path);
  return value == nullptr ? 0 : std::strtod(value->scalar.c_str(), nullptr);
}

/// Scores are multiplied by the square of mscale_all_dim's factor there and of mscale's here.
void must_be_equal(const Converted& c, const std::string& one, const std::string& other) {
  if (number(c, one) <= 0 || number(c, one) != number(c, other))
    c.problem(text("yarn's mscale is ", number(c, one), " and its mscale_all_dim ", number(c, other),
                   "; both must be given, equal and above 0"));
}

bool slows(const Converted& c) { return c.says("rope_type", "yarn") && number(c, "rotary_scaling_factor") > 1; }

void read_yarn(Converted& c) {
  if (!slows(c)) return;
  must_be_equal(c, "facts.mscale", "facts.mscale_all_dim");
  for (const std::string name : {"mscale", "mscale_all_dim"}) c.set(name, c.find("facts." + name)->scalar);
}

void write_yarn(Converted& c) {
  if (!slows(c)) return;
  must_be_equal(c, "mscale", "mscale_all_dim");
  for (const std::string name : {"mscale", "mscale_all_dim"}) c.set("facts." + name, c.find(name)->scalar);
}

void same_norms(Converted& c) {
  if (c.find("norm_epsilon") != nullptr && number(c, "norm_epsilon") != inner_epsilon)
    c.problem(text("the norms within its attention have epsilon ", inner_epsilon, "; the others have ",
                   number(c, "norm_epsilon"), ", and here all have one"));
}

struct Rule {
  const char* name;
  void (*read)(Converted&);
  void (*write)(Converted&);
};
constexpr std::array<Rule, 6> all_rules = {{{"experts_behind_dense_layers", read_dense_first, write_dense_first},
                                            {"experts_every_step", read_every_step, write_every_step},
                                            {"shared_experts", read_shared_experts, write_shared_experts},
                                            {"best_two_of_groups", read_groups, write_groups},
                                            {"latent_yarn", read_yarn, write_yarn},
                                            {"latent_norms", same_norms, same_norms}}};

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

void without_facts(options::Value& config, const options::Value& family_table, const std::string& speaker) {
  Converted converted(config, speaker);
  for (const auto& rule : rules_of(family_table)) rule.read(converted);
  converted.erase("facts");
}

options::Value with_facts(options::Value config, const options::Value& family_table, const std::string& family) {
  Converted converted(config, "a " + family);
  for (const auto& rule : rules_of(family_table)) rule.write(converted);
  return config;
}

}  // namespace tessera::hugging_face
