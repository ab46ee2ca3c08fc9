#pragma once

#include <memory>
#include <optional>

#include "framework/autograd/ops/router.h"
#include "framework/nn/expert_rank.h"
#include "framework/nn/feed_forward.h"

namespace tessera::nn {

/// The type that the product of a router is computed in.
enum class RouterProduct { as_layer, float32, float64 };

/// Configuration of a mixture of experts of the unsharded model.
struct ExpertSizes {
  std::int64_t hidden = 0, inner = 0;  ///< inner: moe_ffn_hidden_size, of each expert
  kernels::RouterRule rule = {1, 1};
  autograd::RouterBalance balance = autograd::RouterBalance::none;
  double aux_coefficient = 0, z_coefficient = 0;
  double capacity_factor = 0;  ///< 0: no choice is dropped
  kernels::DropPolicy drop_policy = kernels::DropPolicy::probs;
  RouterProduct product = RouterProduct::as_layer;
  double jitter = 0;  ///< in training the router's input is multiplied by random factors in [1 - jitter, 1 + jitter]
  bool forces_balance = false;         ///< random numbers take the place of the logits
  bool has_bias = false;               ///< the router has a bias for the selection
  bool weights_on_input = false;       ///< weights of choices multiply the experts' input
  std::int64_t shared_inner = 0;       ///< of the shared expert, which sees every token; 0: none
  bool shared_gate = false;            ///< its output is multiplied by a sigmoid of a product with the input
  bool recomputes_activation = false;  ///< of the shared expert, as FeedForwardSizes has it
  Init init = {}, out_init = {};       ///< of router and linear_fc1, and of linear_fc2
};

/// A mixture of experts: a router sends each token to the best of many feed-forward networks. Their weighted outputs
/// are added up, and that of the shared expert, if there is one. No layer has a bias.
///
/// Of the experts a rank has those of its ExpertRank; it has the whole router, and its tensor-parallel part of the
/// shared expert. Parameters, in this order: router.weight [E, hidden]; router.expert_bias [E] if sizes say so;
/// experts.local_experts.<e>.linear_fc1.weight [inner or 2 inner, hidden] and .linear_fc2.weight [hidden, inner] with e
/// the index among all experts of the layer; shared_experts.gate_weight [1, hidden] if sizes say so;
/// shared_experts.linear_fc1.weight, shared_experts.linear_fc2.weight. Taps: "router" has the logits, "router.weights"
/// the weights of the chosen experts, both [.., E]; "experts.local_experts.<e>" the weighted outputs [rows, hidden] of
/// an expert that this rank has, or this rank's part of their sum. Source: Megatron-LM core, MoELayer; Shazeer et al.,
/// arXiv:1701.06538.
class MixtureOfExperts final : public FeedForward {
 public:
  /// `layer` counts from 0 over the whole model. Throws ShapeError if the ranks do not divide the experts, or their
  /// inner width.
  MixtureOfExperts(FeedForwardKind kind, const std::string& name, std::int64_t layer, const ExpertSizes& sizes,
                   const ExpertRank& rank, const LayerMaker& maker);
  autograd::Var forward(const autograd::Var& x, const Pass& pass) const override;

 private:
  void declare_experts(const ExpertRank& rank);
  autograd::RouterTerms terms(const Pass& pass, bool records) const;
  autograd::Var logits(const autograd::Var& x, const Pass& pass) const;
  autograd::Var shared_output(const autograd::Var& x, const Pass& pass) const;
  /// Passes the weights of the chosen experts as [.., E], 0 for the others, to the tap; x is the shape of the input.
  void show_weights(const autograd::ExpertChoices& choices, const Pass& pass, const Shape& x) const;

  ExpertSizes sizes_;
  std::int64_t layer_;
  kernels::Activation act_;
  bool gated_;
  Parameter* router_;
  Parameter* bias_ = nullptr;
  std::int64_t first_expert_ = 0;           ///< of this rank, among all of the layer
  std::vector<autograd::Leaf*> fc1_, fc2_;  ///< of each expert of this rank
  Parameter* shared_gate_ = nullptr;
  std::unique_ptr<FeedForward> shared_;
};

}  // namespace tessera::nn
