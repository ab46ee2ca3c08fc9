#pragma once

#include <cstdint>
#include <span>

#include "framework/kernels/threads.h"

namespace tessera::kernels {

/// The function that turns a router's logits into scores.
enum class RouterScore { softmax, sigmoid };

/// How a router of a mixture of experts chooses experts for a token and weights them. With logits l [E]:
///
///   softmax                 chooses the topk largest logits; weights are the softmax over the chosen logits
///   softmax, pre_softmax    p = softmax(l); chooses the topk largest p; weights are the chosen p
///   sigmoid                 s = sigmoid(l); chooses the topk largest s + bias; weights are
///                           s / (sum of the chosen s + 1e-20), or s if topk is 1
///
/// All weights are multiplied by `scaling`. If `groups` > 0, the experts are divided into `groups` equal groups of
/// consecutive experts. The score of a group is the sum of its topk / groups_kept (at least 1) largest values, and only
/// experts of the groups_kept best groups can be chosen (group-limited routing). Among equal values the lower index is
/// chosen, for experts and for groups. Source: Megatron-LM core, TopKRouter; Liu et al., arXiv:2412.19437 (sigmoid,
/// bias, groups).
struct RouterRule {
  std::int64_t experts, topk;  ///< experts of the layer; experts chosen by each token
  RouterScore score = RouterScore::softmax;
  bool pre_softmax = false;                  ///< softmax over all experts, before the choice
  std::int64_t groups = 0, groups_kept = 0;  ///< 0: no groups
  double scaling = 1;
};

// In the functions below T is the number of tokens, E = rule.experts, K = rule.topk:
//
//   logits, dlogits    [T, E]
//   chosen             [T, K]   indices of the chosen experts, in descending order of their selection values
//   weights, dweights  [T, K]   weights of the chosen experts, and their gradients
//
// Each token is computed in double and rounded once. Results do not depend on the number of threads. All throw
// ShapeError if a size differs from these shapes.

/// Chooses the experts of each token. `bias` [E] is added to the scores for the selection only; empty: no bias.
///
/// Returns the gap: the minimum over all tokens of (smallest chosen value - largest value that is not chosen). With
/// groups it also covers the choice of groups, whose gap is divided by the number of values in a group's score. A
/// change of every value by less than half the gap changes no choice. Infinity if every expert is chosen.
double choose_experts(Threads& threads, const RouterRule& rule, std::span<const float> logits,
                      std::span<const float> bias, std::span<std::int32_t> chosen);

/// Chooses experts by Sinkhorn normalization of exp(logits) over tokens and experts, which balances the load. Iterates
/// until the mean change of the experts' factors is at most 1e-4. Runs in the calling thread. Source: Megatron-LM core,
/// `sinkhorn`; Clark et al., arXiv:2202.01169.
void choose_by_sinkhorn(const RouterRule& rule, std::span<const float> logits, std::span<std::int32_t> chosen);

/// Writes the weights of the chosen experts, by the formulas of RouterRule.
void choice_weights(Threads& threads, const RouterRule& rule, std::span<const float> logits,
                    std::span<const std::int32_t> chosen, std::span<float> weights);

/// Gradient of choice_weights with respect to the logits: added to dlogits. The choice itself has no gradient.
void choice_weights_backward(Threads& threads, const RouterRule& rule, std::span<const float> logits,
                             std::span<const std::int32_t> chosen, std::span<const float> dweights,
                             std::span<float> dlogits);

// Auxiliary losses. Tokens are [B, S]: B sequences of S tokens, T = B * S. The balance score of a token is softmax(l),
// or for sigmoid scores s / (sum of all s + 1e-20), over all experts.

/// Writes counts [B, E]: the number of tokens of each sequence that chose each expert.
void count_choices(const RouterRule& rule, std::int64_t sequences, std::span<const std::int32_t> chosen,
                   std::span<float> counts);

/// Writes sums [B, E]: the balance scores of each expert, summed over the tokens of each sequence.
void balance_score_sums(Threads& threads, const RouterRule& rule, std::int64_t sequences, std::span<const float> logits,
                        std::span<double> sums);

/// Adds to dlogits the gradient of (sum over b, e of factor[b, e] * sums[b, e]) with respect to the logits, where
/// `sums` is the result of balance_score_sums.
///
///   factor   [B, E]   constants
void balance_scores_backward(Threads& threads, const RouterRule& rule, std::int64_t sequences,
                             std::span<const float> logits, std::span<const double> factor, std::span<float> dlogits);

/// The router z-loss: the mean over the tokens of logsumexp(logits)^2. Source: Zoph et al., arXiv:2202.08906.
double router_z_loss(Threads& threads, std::int64_t experts, std::span<const float> logits);

/// Adds to dlogits the gradient of factor * router_z_loss with respect to the logits.
void router_z_loss_backward(Threads& threads, std::int64_t experts, std::span<const float> logits, double factor,
                            std::span<float> dlogits);

}  // namespace tessera::kernels
