#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "framework/options/schema.h"
#include "framework/tensor/parameter_role.h"

namespace tessera::optim {

/// A rule for the parameters whose names match a pattern.
struct ParameterRule {
  std::string params;  ///< pattern for the whole name; `*` matches any characters: "decoder.layers.*.mlp.*"
  double lr_mult = 1;  ///< multiplies their learning rate
  double wd_mult = 1;  ///< multiplies their weight decay

  /// In a recipe: {params: "*.bias", lr_mult: 2, wd_mult: 0}; an omitted factor is 1.
  struct Option : options::OneValue<ParameterRule> {
    static std::string name() { return "{params, lr_mult, wd_mult}"; }
    static std::string json_schema();
    static bool read(const options::Value& value, ParameterRule& out);
    static options::Value write(const ParameterRule& rule);
  };
};

/// Options of optimizer_config about parameters with their own learning rate or weight decay.
struct ParameterGroupOptions {
  std::optional<std::vector<std::string>> no_weight_decay_params;
  std::vector<ParameterRule> param_rules;
  std::optional<double> decoupled_lr;
  std::optional<double> decoupled_min_lr;
};
/// Declares the options.
void describe(options::Schema<ParameterGroupOptions>& s);

/// The treatment of one parameter. Depends on the recipe and on the parameter's role and name only, so it does not
/// depend on the order of parameters and is not stored in checkpoints.
struct ParameterGroup {
  double lr_mult = 1;      ///< factor of the learning rate
  double wd_mult = 1;      ///< factor of the weight decay; 0: none
  bool decoupled = false;  ///< uses decoupled_lr
  bool balances = false;   ///< the bias of a router, which has a rate of its own
  bool operator==(const ParameterGroup&) const = default;
};

/// The group of a parameter: no weight decay if its role has none (`decays`) or no_weight_decay_params names it, then
/// the factors of all rules that match its name. decoupled_lr is for the word embedding and the output layer.
ParameterGroup group_of(const ParameterGroupOptions& options, ParameterRole role, std::string_view name);

/// Whether the whole of `name` matches `pattern`, in which `*` matches any number of characters.
bool fits(std::string_view pattern, std::string_view name);

}  // namespace tessera::optim
