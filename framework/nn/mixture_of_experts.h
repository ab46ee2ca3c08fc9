#pragma once

#include <memory>
#include <optional>

#include "framework/autograd/ops/router.h"
#include "framework/nn/expert_rank.h"
#include "framework/nn/feed_forward.h"

namespace tessera::nn {

/// Type in which a router computes its logits: the layer's compute type, fp32 or fp64.
enum class RouterProduct { as_layer, float32, float64 };

/// Configuration of a mixture of experts of the unsharded model.
struct ExpertSizes {
  std::int64_t hidden = 0, inner = 0;  ///< hidden size of the model; hidden size of each expert (moe_ffn_hidden_size)
  kernels::RouterRule rule = {1, 1};
  autograd::RouterBalance balance = autograd::RouterBalance::none;
  double aux_coefficient = 0, z_coefficient = 0;  ///< coefficients of the load-balancing loss and of the z-loss
  double capacity_factor = 0;  ///< capacity of an expert, relative to a balanced assignment; 0: no choice is dropped
  kernels::DropPolicy drop_policy = kernels::DropPolicy::probs;
  bool pads_experts = false;  ///< the load of each expert is its capacity, as with padding
  RouterProduct product = RouterProduct::as_layer;
  double jitter = 0;  ///< in training, the router's input is multiplied by random factors in [1 - jitter, 1 + jitter]
  bool forces_balance = false;         ///< replace the logits by random numbers, which balances the load
  bool has_bias = false;               ///< the router has a bias that is added to the scores for the selection
  bool router_bias = false;            ///< the router has a bias of its logits
  bool expert_bias = false;            ///< linear_fc1 and linear_fc2 of each expert have a bias
  kernels::GateForm gate = {};         ///< of a gated kind
  bool weights_on_input = false;       ///< weights of choices multiply the experts' input instead of their activation
  std::int64_t shared_inner = 0;       ///< hidden size of the shared expert, which processes every token; 0: none
  bool shared_gate = false;            ///< multiply the shared expert's output by sigmoid(x gate_weight^T)
  bool recomputes_activation = false;  ///< recompute the activation of the shared expert in the backward pass
  Init init = {}, out_init = {};       ///< initial distribution of router and linear_fc1, and of linear_fc2
};

/// A mixture of experts: a router chooses for each token some of many feed-forward networks (experts). The output is
/// the sum of the weighted outputs of the chosen experts, plus the output of the shared expert, if there is one. The
/// shared expert has no biases.
///
/// A rank has the experts of its ExpertRank, the whole router, and its tensor-parallel part of the shared expert.
/// Parameters, in this order, where E is the number of experts of the layer and e the index of an expert in the layer:
///
///   router.weight                                  [E, hidden]
///   router.bias                                    [E], if router_bias
///   router.expert_bias                             [E], if has_bias
///   experts.local_experts.<e>.linear_fc1.weight    [inner, hidden], or [2 inner, hidden] if gated
///   experts.local_experts.<e>.linear_fc1.bias      [inner], or [2 inner], if expert_bias
///   experts.local_experts.<e>.linear_fc2.weight    [hidden, inner]
///   experts.local_experts.<e>.linear_fc2.bias      [hidden], if expert_bias
///   shared_experts.gate_weight                     [1, hidden], if shared_gate
///   shared_experts.linear_fc1.weight, shared_experts.linear_fc2.weight
///
/// Router and experts may have adapters, like any linear layer: "router.lora_A.weight" behind the parameters of the
/// router, "experts.local_experts.<e>.linear_fc1.up_proj.lora_A.weight" behind the weights. Those of the router are
/// applied in fp32, to the tokens that this rank routes.
///
/// Values shown to the tap (Pass::tap):
///
///   router                      [.., E] logits
///   router.weights              [.., E] weights of the chosen experts, 0 for the others
///   experts.local_experts.<e>   [rows, hidden] weighted outputs of an expert of this rank; with expert tensor
///                               parallelism, this rank's summand of them
///
/// Source: Megatron-LM core, MoELayer; Shazeer et al., arXiv:1701.06538.
class MixtureOfExperts final : public FeedForward {
 public:
  /// `layer` is the index of the layer in the whole model, from 0. Throws ShapeError if the number of ranks does not
  /// divide the number of experts, or the number of tensor-parallel ranks `inner`.
  MixtureOfExperts(FeedForwardKind kind, const std::string& name, std::int64_t layer, const ExpertSizes& sizes,
                   const ExpertRank& rank, const LayerMaker& maker);
  autograd::Var forward(const autograd::Var& x, const Pass& pass) const override;

 private:
  autograd::Var mixed(const autograd::Var& x, const Pass& pass) const;
  void declare_experts(const ExpertRank& rank, const AdapterPlan* plan);
  /// A layer of the experts, for its adapters.
  struct AdaptedLayer {
    const char* name;
    std::vector<const Parameter*> weights;  ///< of this rank's experts
    std::int64_t in;
    std::vector<LinearPart> parts;
    TensorCut rows, columns;
  };
  /// Adds the adapters of the layer of each expert of this rank to `all`; null: it has none.
  void declare_adapters(const AdapterPlan& plan, const ExpertRank& rank, const AdaptedLayer& layer,
                        std::vector<std::unique_ptr<Adapters>>& all);
  std::unique_ptr<Adapters> adapters_of_router(const AdapterPlan* plan) const;
  /// The layers of this rank's experts, for the input x.
  autograd::ExpertLayers layers(const autograd::Var& x, const Pass& pass) const;
  autograd::RouterTerms terms(const Pass& pass, bool records) const;
  autograd::Var logits(const autograd::Var& x, const Pass& pass) const;
  autograd::Var shared_output(const autograd::Var& x, const Pass& pass) const;
  /// Passes the weights of the chosen experts, as [.., E] with 0 for the others, to the tap; `x` is the shape of the
  /// input.
  void show_weights(const autograd::ExpertChoices& choices, const Pass& pass, const Shape& x) const;

  ExpertSizes sizes_;
  std::int64_t layer_;
  kernels::Activation act_;
  bool gated_;
  Parameter* router_;
  Parameter* router_bias_ = nullptr;
  Parameter* bias_ = nullptr;
  std::int64_t first_expert_ = 0;           ///< index in the layer of this rank's first expert
  std::vector<autograd::Leaf*> fc1_, fc2_;  ///< weights of each expert of this rank
  std::vector<autograd::Leaf*> fc1_bias_, fc2_bias_;
  double bias_part_ = 1;  ///< see autograd::ExpertLayers
  std::unique_ptr<Adapters> router_adapters_;
  std::vector<std::unique_ptr<Adapters>> fc1_adapters_, fc2_adapters_;  ///< of each expert of this rank; null: none
  /// Ranks share experts of which some have adapters; some of these have dropout. Equal on all ranks.
  bool adapters_shared_ = false, drops_ = false;
  Parameter* shared_gate_ = nullptr;
  std::unique_ptr<FeedForward> shared_;
};

}  // namespace tessera::nn
