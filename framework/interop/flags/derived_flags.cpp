#include "framework/interop/flags/derived_flags.h"

#include <algorithm>

#include "framework/base/error.h"
#include "framework/options/option_type.h"

namespace tessera::flags {
namespace {

using Settings = std::vector<std::pair<std::string, std::string>>;

const std::string m = "model_config.", p = "parallel_config.", e = "moe_config.";

/// What the other flags say, as numbers and words.
class Said {
 public:
  Said(const std::string& value, const options::Value& recipe) : value_(value), recipe_(recipe) {}

  /// The flag's own value. Throws ConfigError if it is not a number.
  std::int64_t own() const { return number(options::Value::of(value_, {}), "its value"); }
  bool has(const std::string& option) const { return recipe_.at(option) != nullptr; }
  std::string word(const std::string& option) const {
    const auto* value = recipe_.at(option);
    return value ? value->scalar : "";
  }
  /// Throws ConfigError, with `advice`, if no flag says it or it is not a number.
  std::int64_t number(const std::string& option, const std::string& advice) const {
    const auto* value = recipe_.at(option);
    if (value == nullptr) throw ConfigError(text(option, " is not known; ", advice));
    return number(*value, option);
  }
  std::int64_t number(const std::string& option, std::int64_t otherwise) const {
    return has(option) ? number(option, "give a number") : otherwise;
  }

 private:
  static std::int64_t number(const options::Value& value, const std::string& what) {
    std::int64_t out = 0;
    if (!options::OptionType<std::int64_t>::read(value, out))
      throw ConfigError(text(what, " is '", value.scalar, "', not a whole number; give one"));
    return out;
  }
  const std::string& value_;
  const options::Value& recipe_;
};

bool has_experts(const Said& said) { return said.has(m + "num_experts") || said.has(e + "num_experts"); }

Settings shared_experts(const Said& said) {
  if (said.own() == 0 || !has_experts(said)) return {};
  const auto advice = "give --moe-shared-expert-intermediate-size, the width of all shared experts together";
  const auto width =
      said.number(said.has(e + "moe_ffn_hidden_size") ? e + "moe_ffn_hidden_size" : m + "ffn_hidden_size", advice);
  return {{e + "moe_shared_expert_intermediate_size", std::to_string(said.own() * width)}};
}

Settings first_dense_layers(const Said& said) {
  const auto dense = said.own();
  if (dense <= 0 || !has_experts(said)) return {};
  const auto layers = said.number(m + "num_layers", "give --num-layers");
  const auto every = said.number(e + "moe_layer_freq", 1);
  if (every == 0 || dense >= layers)
    throw ConfigError(text("--first-k-dense-replace ", dense, " and --moe-layer-freq ", every,
                           " leave no layer with experts among ", layers,
                           "; give a --first-k-dense-replace below --num-layers, and a --moe-layer-freq other than 0"));
  std::string list = "[";
  for (std::int64_t i = 0; i < layers; ++i) list += text(i > 0 ? ", " : "", i >= dense && i % every == 0 ? 1 : 0);
  return {{e + "moe_layer_freq", list + "]"}};
}

Settings experts_over_tensor(const Said& said) {
  const auto tensor = said.number(p + "tensor_model_parallel_size", 1),
             experts = said.number(p + "expert_model_parallel_size", 1);
  return {{p + "expert_tensor_parallel_size", "1"},
          {p + "expert_model_parallel_size", std::to_string(experts * tensor)},
          {e + "moe_token_dispatcher_type", "alltoall"}};
}

Settings sequence_loss(const Said& said) {
  const auto coefficient = said.word(e + "moe_aux_loss_coeff");
  double number = 0;
  if (options::OptionType<double>::read(options::Value::of(coefficient, {}), number) && number == 0) return {};
  if (said.word(e + "moe_router_load_balancing_type") != "none") return {};  // nothing else reads the flag
  if (said.word(e + "moe_router_enable_expert_bias") == "true")
    throw ConfigError(
        "with --moe-router-enable-expert-bias its loss adds the bias to the scores, which Megatron-LM's does not; give "
        "--moe-router-load-balancing-type seq_aux_loss for that one, or --moe-aux-loss-coeff 0");
  return {{e + "moe_router_load_balancing_type", "seq_aux_loss"}};
}

struct Rule {
  const char* name;
  Settings (*settings)(const Said& said);
  const char* words;
};

const std::vector<Rule>& rules() {
  static const std::vector<Rule> all = {
      {"shared_experts", shared_experts,
       "`moe_config.moe_shared_expert_intermediate_size`: this number times the hidden size of an expert"},
      {"first_dense_layers", first_dense_layers,
       "`moe_config.moe_layer_freq`: a list in which that many layers at the beginning have no experts; 0 and -1: "
       "none"},
      {"experts_over_tensor", experts_over_tensor,
       "`parallel_config.expert_tensor_parallel_size: 1`, and `parallel_config.expert_model_parallel_size` times the "
       "tensor-parallel size; also `moe_config.moe_token_dispatcher_type: alltoall`, which does not affect results and "
       "goes with any sizes"},
      {"sequence_loss", sequence_loss,
       "`moe_config.moe_router_load_balancing_type: seq_aux_loss` where that is none and `moe_aux_loss_coeff` is not "
       "0; "
       "refused with an expert bias, which its loss adds to the scores"}};
  return all;
}

const Rule& rule_named(const std::string& name) {
  const auto found = std::find_if(rules().begin(), rules().end(), [&](const auto& rule) { return rule.name == name; });
  must(found != rules().end(), "a row with `derived` names one of the rules of derived_flags.h");
  return *found;
}

}  // namespace

Settings derived_settings(const std::string& rule, const std::string& value, const options::Value& recipe) {
  return rule_named(rule).settings(Said(value, recipe));
}

std::string describe_rule(const std::string& rule) { return rule_named(rule).words; }

}  // namespace tessera::flags
