#include "framework/autograd/ops/router.h"

#include <algorithm>

#include "framework/kernels/type_conversion.h"

namespace tessera::autograd {
namespace {

template <class T>
std::span<T> keep(Tape& tape, std::size_t count) {
  return {reinterpret_cast<T*>(tape.keep(count * sizeof(T)).data()), count};
}

/// With Sinkhorn the weights are sigmoids for one choice, else parts of the softmax over all experts, whatever the score
/// function; Megatron-LM scales neither.
kernels::RouterRule rule_of_weights(const RouterTerms& terms) {
  if (terms.balance != RouterBalance::sinkhorn) return terms.rule;
  kernels::RouterRule rule{terms.rule.experts, terms.rule.topk};
  rule.score = rule.topk == 1 ? kernels::RouterScore::sigmoid : kernels::RouterScore::softmax;
  rule.pre_softmax = true;
  return rule;
}

/// The balancing loss, and the gradient of the loss with respect to each sum of scores.
///
///   counts, sums, factor   [B, E]
///
///   aux_loss       E / (K T^2) sum_e (sum_b sums) (sum_b counts)
///   seq_aux_loss   mean_b sum_e counts E / (S K) sums / S
double balance_loss(const RouterTerms& terms, std::int64_t tokens, std::span<const float> counts,
                    std::span<const double> sums, std::span<double> factor) {
  const auto E = static_cast<std::size_t>(terms.rule.experts), B = static_cast<std::size_t>(terms.sequences);
  const double T = static_cast<double>(tokens), S = T / static_cast<double>(B);
  const auto K = static_cast<double>(terms.rule.topk);
  double loss = 0;
  for (std::size_t e = 0; e < E; ++e) {
    double count = 0;
    for (std::size_t b = 0; b < B; ++b) count += static_cast<double>(counts[b * E + e]);
    for (std::size_t b = 0; b < B; ++b) {
      const auto i = b * E + e;
      factor[i] = terms.balance == RouterBalance::aux_loss
                      ? static_cast<double>(E) / (K * T * T) * count
                      : static_cast<double>(E) / (S * K * S * static_cast<double>(B)) * static_cast<double>(counts[i]);
      loss += factor[i] * sums[i];
    }
  }
  return loss;
}

class RouteNode final : public Node {
 public:
  RouteNode(VarId weights, Var logits, const RouterTerms& terms, std::span<const std::int32_t> chosen,
            std::span<const std::int32_t> kept, std::span<const double> factor, LeafUse bias)
      : weights_(weights),
        logits_(std::move(logits)),
        terms_(terms),
        chosen_(chosen),
        kept_(kept),
        factor_(factor),
        bias_(bias) {}
  void backward(Tape& tape) override {
    give_logits(tape);
    if (!bias_) return;
    if (bias_.leaf->trained()) add_load();
    tape.done(bias_);
  }

 private:
  /// Whole numbers, exact in fp32 up to 2^24.
  void add_load() const {
    const auto load = bias_.leaf->grad.floats();
    float all = 0;
    for (const auto expert : kept_) {
      if (expert < 0) continue;
      load[static_cast<std::size_t>(expert)] += static_cast<float>(load.size());
      all += 1;
    }
    for (auto& one : load) one -= all;
  }

  void give_logits(Tape& tape) {
    const auto dweights = tape.take_grad(weights_);
    if (dweights.empty() && terms_.seed == 0) return;
    const auto target = tape.grad_target(logits_);
    if (target.tensor.empty()) return;
    auto& threads = tape.threads();
    const auto logits = tape.read(logits_);
    const auto dlogits = tape.write(target);
    if (!target.add) std::fill(dlogits.span().begin(), dlogits.span().end(), 0.0F);
    if (!dweights.empty())
      kernels::choice_weights_backward(threads, rule_of_weights(terms_), logits, chosen_, dweights.tensor.floats(),
                                       dlogits);
    if (!factor_.empty())
      kernels::balance_scores_backward(threads, terms_.rule, terms_.sequences, logits, factor_, dlogits);
    if (terms_.z_coefficient != 0 && terms_.seed != 0)
      kernels::router_z_loss_backward(threads, terms_.rule.experts, logits, terms_.z_coefficient * terms_.seed,
                                      dlogits);
  }

  VarId weights_;
  Var logits_;
  RouterTerms terms_;
  std::span<const std::int32_t> chosen_, kept_;  ///< before and after dropping
  std::span<const double> factor_;  ///< [B, E] gradient of the objective with respect to the score sums; empty: none
  LeafUse bias_;
};

}  // namespace

ExpertChoices route(const Var& logits, const RouterTerms& terms) {
  auto& tape = logits.tape();
  auto& threads = tape.threads();
  const auto& rule = terms.rule;
  const auto T = logits.shape().rows();
  if (logits.shape().width() != rule.experts || terms.sequences < 1 || T % terms.sequences != 0)
    throw ShapeError(text("router: logits are ", logits.shape(), "; ", rule.experts, " experts and ", terms.sequences,
                          " sequences of equal length were promised"));
  const auto choices = static_cast<std::size_t>(T * rule.topk), E = static_cast<std::size_t>(rule.experts);
  const auto chosen = keep<std::int32_t>(tape, choices);
  const auto counts = keep<float>(tape, static_cast<std::size_t>(terms.sequences) * E);
  auto weights = tape.make({T, rule.topk}, logits.wants_grad());
  const auto values = weights.floats();
  ExpertChoices out{rule.experts, rule.topk, chosen, {}, counts.first(E)};
  std::span<double> factor;
  {
    const auto in = tape.read(logits);
    const auto of_weights = rule_of_weights(terms);
    if (terms.balance != RouterBalance::sinkhorn)
      out.gap = kernels::choose_experts(
          threads, rule, in, terms.bias ? std::span<const float>(terms.bias->value.floats()) : std::span<const float>{},
          chosen);
    else if (terms.training)
      kernels::choose_by_sinkhorn(rule, in, chosen);
    else
      kernels::choose_experts(threads, of_weights, in, {}, chosen);
    kernels::choice_weights(threads, of_weights, in, chosen, values);
    kernels::round_to(threads, logits.value().dtype(), values);
    kernels::count_choices(rule, terms.sequences, chosen, counts);
    const bool balances = terms.balance == RouterBalance::aux_loss || terms.balance == RouterBalance::seq_aux_loss;
    if (terms.seed != 0 && balances && terms.aux_coefficient != 0) {
      factor = keep<double>(tape, 2 * counts.size());
      const auto sums = factor.subspan(counts.size());
      factor = factor.first(counts.size());
      kernels::balance_score_sums(threads, rule, terms.sequences, in, sums);
      out.aux_loss = balance_loss(terms, T, counts, sums, factor);
      for (auto& f : factor) f *= terms.aux_coefficient * terms.seed;
    }
    if (terms.seed != 0 && terms.z_coefficient != 0) out.z_loss = kernels::router_z_loss(threads, rule.experts, in);
  }
  for (std::size_t i = E; i < counts.size(); ++i) counts[i % E] += counts[i];
  out.chosen = chosen;
  if (terms.capacity_factor > 0) {
    const auto kept = keep<std::int32_t>(tape, choices);
    std::copy(chosen.begin(), chosen.end(), kept.begin());
    kernels::drop_choices(terms.drop_policy, rule.experts, rule.topk,
                          kernels::expert_capacity(T, rule.topk, rule.experts, terms.capacity_factor), terms.sequences,
                          kept, values);
    out.chosen = kept;
  }
  if (weights.wants_grad())
    tape.record<RouteNode>(weights, logits, terms, chosen, out.chosen, factor, tape.use(terms.bias));
  out.weights = std::move(weights);
  return out;
}

}  // namespace tessera::autograd
