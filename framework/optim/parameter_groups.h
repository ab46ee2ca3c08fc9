#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "framework/options/schema.h"

namespace tessera {

/// A rule for the parameters whose names fit a pattern.
struct ParameterRule {
  std::string params;  ///< the whole name, `*` standing for any letters: "decoder.layers.*.mlp.*"
  double lr_mult = 1;  ///< multiplies their learning rate
  double wd_mult = 1;  ///< multiplies their weight decay
};

/// In a recipe: {params: "*.bias", lr_mult: 2, wd_mult: 0}; a factor left out is 1.
template <>
struct OptionType<ParameterRule> : OneValue<ParameterRule> {
  static std::string name() { return "{params, lr_mult, wd_mult}"; }
  static std::string json_schema();
  static bool read(const Value& value, ParameterRule& out);
  static Value write(const ParameterRule& rule);
};

/// Which parameters learn and decay in their own way; in optimizer_config.
struct ParameterGroupOptions {
  std::optional<std::vector<std::string>> no_weight_decay_params;
  std::vector<ParameterRule> param_rules;
  std::optional<double> decoupled_lr;
  std::optional<double> decoupled_min_lr;
};
void describe(Schema<ParameterGroupOptions>& s);

/// How one parameter is treated. A function of the recipe, its name and its number of dimensions alone, so groups
/// never depend on the order of parameters, and a checkpoint needs none of it.
struct ParameterGroup {
  double lr_mult = 1;
  double wd_mult = 1;      ///< 0: does not decay
  bool decoupled = false;  ///< follows decoupled_lr
  bool operator==(const ParameterGroup&) const = default;
};

/// Megatron-LM's rule: what is named `*.bias` or has one dimension does not decay. no_weight_decay_params and the
/// factors of every rule that fits come on top; decoupled_lr is for the word embedding and the output layer.
ParameterGroup group_of(const ParameterGroupOptions& options, std::string_view name, std::size_t dims);

/// Whether all of `name` fits `pattern`, in which `*` stands for any number of letters.
bool fits(std::string_view pattern, std::string_view name);

}  // namespace tessera
