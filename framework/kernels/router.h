#pragma once

#include <cstdint>
#include <span>

#include "framework/kernels/threads.h"

namespace tessera::kernels {

/// The function that turns a router's logits into scores.
enum class RouterScore { softmax, sigmoid };

/// How a router of a mixture of experts chooses experts for a token and weights them. With logits l [E]:
///
///   softmax                 the topk largest logits; their weights are the softmax over these
///   softmax, pre_softmax    p = softmax(l); the topk largest p, which are the weights
///   sigmoid                 s = sigmoid(l); chosen by s + bias; weights s / (sum of the chosen s + 1e-20), or s if
///                           topk is 1
///
/// All weights are multiplied by `scaling`. With `groups` > 0 the experts form that many equal groups in order; the
/// score of a group is the sum of its topk / groups_kept largest values, and only the experts of the groups_kept best
/// groups can be chosen. Of equal values the one with the lower index wins, for experts and for groups. Source:
/// Megatron-LM core, TopKRouter; Liu et al., arXiv:2412.19437 (sigmoid, bias, groups).
struct RouterRule {
  std::int64_t experts, topk;
  RouterScore score = RouterScore::softmax;
  bool pre_softmax = false;
  std::int64_t groups = 0, groups_kept = 0;
  double scaling = 1;
};

// In the functions below T is the number of tokens, E = rule.experts, K = rule.topk:
//
//   logits, dlogits    [T, E]
//   chosen             [T, K]   indices of experts, the largest selection value first
//   weights, dweights  [T, K]   of the chosen experts
//
// Each token is computed in double and rounded once. Results do not depend on the number of threads. All throw
// ShapeError if a size differs from these shapes.

/// Chooses the experts of each token. `bias` [E] is added to the scores for the selection only; empty: none. Returns
/// the smallest gap of all tokens: the least chosen value less the largest refused one, of experts or of groups of
/// them, so that a change of values by less than half of it changes no choice. Infinity if nothing can be refused.
double choose_experts(Threads& threads, const RouterRule& rule, std::span<const float> logits,
                      std::span<const float> bias, std::span<std::int32_t> chosen);

/// Chooses by Sinkhorn normalisation of exp(logits) over tokens and experts, which balances the load. Iterates until
/// the mean change of the experts' factors is at most 1e-4. Source: Megatron-LM core, `sinkhorn`; Clark et al.,
/// arXiv:2202.01169.
void choose_by_sinkhorn(const RouterRule& rule, std::span<const float> logits, std::span<std::int32_t> chosen);

/// The weights of the chosen experts.
void choice_weights(Threads& threads, const RouterRule& rule, std::span<const float> logits,
                    std::span<const std::int32_t> chosen, std::span<float> weights);

/// Gradient of choice_weights with respect to the logits: added to dlogits. The choice itself has no gradient.
void choice_weights_backward(Threads& threads, const RouterRule& rule, std::span<const float> logits,
                             std::span<const std::int32_t> chosen, std::span<const float> dweights,
                             std::span<float> dlogits);

// Auxiliary losses. Tokens are [B, S]: B sequences of S tokens, T = B * S. The balance score of a token is softmax(l),
// or for sigmoid scores s / (sum of all s + 1e-20), over all experts.

/// counts [B, E]: how many tokens of each sequence chose each expert. Written.
void count_choices(const RouterRule& rule, std::int64_t sequences, std::span<const std::int32_t> chosen,
                   std::span<float> counts);

/// sums [B, E]: the sum of the balance scores of each sequence. Written.
void balance_score_sums(Threads& threads, const RouterRule& rule, std::int64_t sequences, std::span<const float> logits,
                        std::span<double> sums);

/// Gradient with respect to the logits of sum over b, e of factor[b, e] * sums[b, e] of balance_score_sums: added to
/// dlogits.
///
///   factor   [B, E]
void balance_scores_backward(Threads& threads, const RouterRule& rule, std::int64_t sequences,
                             std::span<const float> logits, std::span<const double> factor, std::span<float> dlogits);

/// Mean over the tokens of logsumexp(logits)^2. Source: Zoph et al., arXiv:2202.08906.
double router_z_loss(Threads& threads, std::int64_t experts, std::span<const float> logits);

/// Gradient of factor * router_z_loss: added to dlogits.
void router_z_loss_backward(Threads& threads, std::int64_t experts, std::span<const float> logits, double factor,
                            std::span<float> dlogits);

}  // namespace tessera::kernels
