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
  std::string params;  ///< pattern that the whole name must match; see `fits`: "decoder.layers.*.mlp.*"
  double lr_mult = 1;  ///< factor of the learning rate
  double wd_mult = 1;  ///< factor of the weight decay

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

/// How learning rate and weight decay apply to one parameter. Depends only on the recipe and on the role and name of
/// the parameter, not on the order of parameters, so it is not stored in checkpoints.
struct ParameterGroup {
  double lr_mult = 1;      ///< factor of the learning rate
  double wd_mult = 1;      ///< factor of the weight decay; 0: none
  bool decoupled = false;  ///< uses decoupled_lr and decoupled_min_lr
  bool balances = false;   ///< the bias of a router, which has its own update rate and rule (StepScalars::balances)
  bool operator==(const ParameterGroup&) const = default;
};

/// The group of a parameter. wd_mult is 0 if its role has no weight decay (`decays`) or its name ends with one of
/// no_weight_decay_params. Both factors are multiplied by those of all rules in param_rules that match the name, so the
/// order of rules does not matter. `decoupled` is set for the word embedding and the output layer if decoupled_lr is
/// given. A router's bias has no decay, and no rule applies to it.
ParameterGroup group_of(const ParameterGroupOptions& options, ParameterRole role, std::string_view name);

/// LoRA+ (Hayou et al., arXiv:2402.12354): factors of the learning rate, from lora_config.
struct LoraPlus {
  double ratio = 1;      ///< for the factors B and for all vectors (biases, magnitudes, gains)
  double embedding = 1;  ///< for the factors of the word embedding's adapter
  /// Of a parameter, as in PEFT (optimizers/loraplus.py), where the magnitudes of an embedding's adapter have the rate
  /// of all vectors. A router's bias has no learning rate.
  double factor(ParameterRole role, std::string_view name) const;
};

/// Whether the whole of `name` matches `pattern`, in which `*` matches any number of characters.
bool fits(std::string_view pattern, std::string_view name);

}  // namespace tessera::optim
