#include "framework/optim/parameter_groups.h"

#include <algorithm>

#include "framework/options/limits.h"

namespace tessera::optim {
namespace {

bool is_factor(double number) { return number >= 0 && number <= options::most_factor; }

}  // namespace

bool ParameterRule::Option::read(const options::Value& value, ParameterRule& out) {
  if (value.kind != options::Value::Kind::group || !value.find("params")) return false;
  ParameterRule rule;
  for (const auto& [name, given] : value.fields) {
    const bool good =
        name == "params"    ? options::OptionType<std::string>::read(given, rule.params)
        : name == "lr_mult" ? options::OptionType<double>::read(given, rule.lr_mult) && is_factor(rule.lr_mult)
        : name == "wd_mult" ? options::OptionType<double>::read(given, rule.wd_mult) && is_factor(rule.wd_mult)
                            : false;
    if (!good) return false;
  }
  out = std::move(rule);
  return true;
}

std::string ParameterRule::Option::json_schema() {
  return R"({"type": "object", "required": ["params"], "additionalProperties": false, "properties": {
    "params": {"$ref": "#/$defs/text"}, "lr_mult": {"$ref": "#/$defs/factor"}, "wd_mult": {"$ref": "#/$defs/factor"}}})";
}

options::Value ParameterRule::Option::write(const ParameterRule& rule) {
  options::Value value;
  value.set("params", options::OptionType<std::string>::write(rule.params));
  value.set("lr_mult", options::OptionType<double>::write(rule.lr_mult));
  value.set("wd_mult", options::OptionType<double>::write(rule.wd_mult));
  return value;
}

void describe(options::Schema<ParameterGroupOptions>& s) {
  using O = ParameterGroupOptions;
  s.when_changed(options::Change::told);
  s.option("no_weight_decay_params", &O::no_weight_decay_params,
           "Name suffixes of further parameters without weight decay; biases and norm weights never decay.");
  s.option("param_rules", &O::param_rules,
           "Multipliers of learning rate and weight decay for parameters whose names match a pattern with *.")
      .no_flag("only Tessera has it");
  s.option("decoupled_lr", &O::decoupled_lr, "Maximum learning rate of the word embedding and the output layer.")
      .at_least(0)
      .at_most(options::most_rate);
  s.option("decoupled_min_lr", &O::decoupled_min_lr,
           "Minimum learning rate of the word embedding and the output layer.")
      .at_least(0)
      .at_most(options::most_rate)
      .matters_when([](const O& o) { return o.decoupled_lr.has_value(); }, "`decoupled_lr` is null")
      .must(
          "O1",
          [](const O& o) { return !o.decoupled_lr || !o.decoupled_min_lr || *o.decoupled_min_lr <= *o.decoupled_lr; },
          [](const O& o) {
            return text("decoupled_min_lr is ", *o.decoupled_min_lr, ", above decoupled_lr ", *o.decoupled_lr);
          },
          "make it smaller", {"decoupled_lr"});
}

bool fits(std::string_view pattern, std::string_view name) {
  const auto star = pattern.find('*');
  if (star == std::string_view::npos) return pattern == name;
  if (name.substr(0, star) != pattern.substr(0, star)) return false;
  pattern.remove_prefix(star + 1);
  for (auto rest = name.substr(star);; rest.remove_prefix(1)) {
    if (fits(pattern, rest)) return true;
    if (rest.empty()) return false;
  }
}

// Every matching rule applies, so the order of rules does not matter.
ParameterGroup group_of(const ParameterGroupOptions& o, ParameterRole role, std::string_view name) {
  ParameterGroup group;
  if (role == ParameterRole::expert_bias) {
    group.wd_mult = 0;
    group.balances = true;
    return group;
  }
  const auto ends = o.no_weight_decay_params.value_or(std::vector<std::string>{});
  const bool spared = std::any_of(ends.begin(), ends.end(), [&](const auto& end) { return name.ends_with(end); });
  if (spared || !decays(role)) group.wd_mult = 0;
  for (const auto& rule : o.param_rules) {
    if (!fits(rule.params, name)) continue;
    group.lr_mult *= rule.lr_mult;
    group.wd_mult *= rule.wd_mult;
  }
  group.decoupled = o.decoupled_lr && has_vocabulary_rows(role) && role != ParameterRole::output_bias;
  return group;
}

double LoraPlus::factor(ParameterRole role, std::string_view name) const {
  if (role == ParameterRole::expert_bias) return 1;
  if (is_vector(role)) return ratio;
  if (name.starts_with("embedding.word_embeddings.lora_")) return embedding;
  return name.ends_with(".lora_B.weight") ? ratio : 1;
}

}  // namespace tessera::optim
