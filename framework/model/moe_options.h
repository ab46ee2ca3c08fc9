#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "framework/nn/mixture_of_experts.h"
#include "framework/options/schema.h"

// The words are found in the namespace of their enumeration.
namespace tessera::kernels {

inline options::Words<RouterScore> words(RouterScore) {
  return {{"softmax", RouterScore::softmax}, {"sigmoid", RouterScore::sigmoid}};
}
inline options::Words<DropPolicy> words(DropPolicy) {
  return {{"probs", DropPolicy::probs}, {"position", DropPolicy::position}};
}

}  // namespace tessera::kernels

// The words are found in the namespace of their enumeration.
namespace tessera::autograd {

inline options::Words<RouterBalance> words(RouterBalance) {
  return {{"aux_loss", RouterBalance::aux_loss},
          {"seq_aux_loss", RouterBalance::seq_aux_loss},
          {"sinkhorn", RouterBalance::sinkhorn},
          {"none", RouterBalance::none}};
}

}  // namespace tessera::autograd

// The words are found in the namespace of their enumeration.
namespace tessera::nn {

inline options::Words<RouterProduct> words(RouterProduct) {
  return {{"fp32", RouterProduct::float32}, {"fp64", RouterProduct::float64}};
}

}  // namespace tessera::nn

namespace tessera::model {

/// Which layers are mixtures of experts: every n-th layer, beginning with the first, or a list with 0 or 1 for each
/// layer.
struct LayerFrequency {
  std::int64_t every = 1;
  std::vector<std::int64_t> list = {};  ///< [layers], 1: has experts; empty: every `every`-th layer has experts
  bool operator==(const LayerFrequency&) const = default;

  /// Whether layer `index` of the whole model, counted from 0, has experts. `every` -1 means every layer, because
  /// index % -1 is 0, as in Python.
  bool has_experts(std::int64_t index) const {
    return list.empty() ? index % every == 0 : list[static_cast<std::size_t>(index)] == 1;
  }

  /// The option is read from an integer, a list of 0 and 1, or a string with an expression of such lists, +, * and
  /// parentheses: "([0]*1+[1]*3)". Source: Megatron-LM core, moe_freq_type.
  struct Option : options::OneValue<LayerFrequency> {
    static std::string name() { return "every N-th, or list of 0 and 1"; }
    static std::string json_schema();
    static bool read(const options::Value& value, LayerFrequency& out);
    static options::Value write(const LayerFrequency& value);
  };
};

/// Options of moe_config. describe() has the meaning and unit of each.
struct MoeOptions {
  std::int64_t num_experts = 1;
  LayerFrequency moe_layer_freq;
  std::optional<std::int64_t> moe_ffn_hidden_size;
  std::optional<std::int64_t> moe_shared_expert_intermediate_size;
  bool moe_shared_expert_gate = false;
  bool moe_use_upcycling = false;
  bool moe_layer_recompute = false;

  std::int64_t moe_router_topk = 2;
  std::optional<nn::RouterProduct> moe_router_dtype;
  kernels::RouterScore moe_router_score_function = kernels::RouterScore::softmax;
  bool moe_router_pre_softmax = false;
  std::optional<std::int64_t> moe_router_num_groups;
  std::optional<std::int64_t> moe_router_group_topk;
  std::optional<double> moe_router_topk_scaling_factor;
  bool moe_router_enable_expert_bias = false;
  double moe_router_bias_update_rate = 1e-3;
  std::optional<double> moe_input_jitter_eps;
  bool moe_router_force_load_balancing = false;

  autograd::RouterBalance moe_router_load_balancing_type = autograd::RouterBalance::aux_loss;
  double moe_aux_loss_coeff = 0;
  std::optional<double> moe_z_loss_coeff;
  bool moe_per_layer_logging = false;

  std::optional<double> moe_expert_capacity_factor;
  bool moe_pad_expert_input_to_capacity = false;
  kernels::DropPolicy moe_token_drop_policy = kernels::DropPolicy::probs;
  bool moe_apply_probs_on_input = false;

  /// Whether routers have a load-balancing loss, possibly with coefficient 0.
  bool balances() const {
    return moe_router_load_balancing_type == autograd::RouterBalance::aux_loss ||
           moe_router_load_balancing_type == autograd::RouterBalance::seq_aux_loss;
  }
  /// The rule by which a router with these options chooses among `experts` experts.
  kernels::RouterRule router_rule(std::int64_t experts) const;
};
/// Declares the options.
void describe(options::Schema<MoeOptions>& s);

}  // namespace tessera::model
