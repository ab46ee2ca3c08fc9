#include "framework/autograd/ops/router.h"

#include <algorithm>

#include "framework/kernels/type_conversion.h"
#include "framework/kernels/vector.h"

namespace tessera::autograd {
namespace {

/// The rule for the weights. With Sinkhorn they are sigmoids if topk is 1, else the softmax over all experts, for any
/// score function and without scaling, as in Megatron-LM.
kernels::RouterRule rule_of_weights(const RouterTerms& terms) {
  if (terms.balance != RouterBalance::sinkhorn) return terms.rule;
  kernels::RouterRule rule{terms.rule.experts, terms.rule.topk};
  rule.score = rule.topk == 1 ? kernels::RouterScore::sigmoid : kernels::RouterScore::softmax;
  rule.pre_softmax = true;
  return rule;
}

/// Returns the load-balancing loss, and writes its gradient with respect to each sum of scores to `factor`.
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
            std::span<const float> kept, std::int64_t tokens, std::span<const double> factor, LeafUse bias)
      : weights_(weights),
        logits_(std::move(logits)),
        terms_(terms),
        chosen_(chosen),
        kept_(kept),
        tokens_(tokens),
        factor_(factor),
        bias_(bias) {}
  void backward(Tape& tape) override {
    give_logits(tape);
    if (!bias_) return;
    if (bias_.leaf->trained() && !terms_.pads_experts) add_load(tape);
    tape.done(bias_);
  }

 private:
  /// Adds the load of the experts to the gradient of the bias. Loads are integers, exact in fp32 up to 2^24.
  void add_load(Tape& tape) const {
    const auto load = bias_.leaf->grad_to_add_to(tape.threads());
    float all = 0;
    for (const auto count : kept_) all += count;
    for (std::size_t e = 0; e < load.size(); ++e) load[e] += static_cast<float>(load.size()) * kept_[e] - all;
  }

  void give_logits(Tape& tape) {
    const auto dweights = tape.take_grad(weights_);
    if (dweights.empty() && terms_.seed == 0) return;
    const auto target = tape.grad_target(logits_);
    if (target.tensor.empty()) return;
    auto& threads = tape.threads();
    const auto logits = tape.read(logits_);
    const auto dlogits = tape.write(target);
    if (!target.add) kernels::fill(threads, 0, dlogits);
    if (!dweights.empty())
      kernels::choice_weights_backward(threads, rule_of_weights(terms_), logits, chosen_, dweights.tensor.floats(),
                                       dlogits);
    if (!factor_.empty())
      kernels::balance_scores_backward(threads, terms_.rule, terms_.sequences, logits, factor_, dlogits);
    // router_z_loss is a mean over the tokens of this rank; the loss is a mean over all tokens of the micro-batch.
    const double here = static_cast<double>(logits_.shape().rows()) / static_cast<double>(tokens_);
    if (terms_.z_coefficient != 0 && terms_.seed != 0)
      kernels::router_z_loss_backward(threads, terms_.rule.experts, logits, terms_.z_coefficient * terms_.seed * here,
                                      dlogits);
  }

  VarId weights_;
  Var logits_;
  RouterTerms terms_;
  std::span<const std::int32_t> chosen_;  ///< before dropping
  std::span<const float> kept_;           ///< [E] choices of the whole micro-batch that were not dropped
  std::int64_t tokens_;                   ///< number of tokens of the whole micro-batch
  std::span<const double> factor_;  ///< [B, E] gradient of the objective with respect to the score sums; empty: none
  LeafUse bias_;
};

/// Copies the rows of this rank's tokens from `all` [tokens, K] to `own` [.., K].
template <class T>
void take_own(Tape& tape, const MicroBatchRanks& ranks, std::size_t K, std::span<const T> all, std::span<T> own) {
  tape.threads().parallel_for(own.size() / K, 1024, [&](std::size_t first, std::size_t last) {
    for (auto t = first; t < last; ++t)
      std::copy_n(all.begin() + ranks.index(static_cast<std::int64_t>(t)) * static_cast<std::int64_t>(K), K,
                  own.begin() + static_cast<std::ptrdiff_t>(t * K));
  });
}

/// The decisions of a router about a micro-batch, whose tokens may be on several ranks.
class Routing {
 public:
  Routing(const Var& logits, const RouterTerms& terms, const MicroBatchRanks* ranks)
      : tape_(logits.tape()),
        terms_(terms),
        ranks_(ranks),
        own_tokens_(logits.shape().rows()),
        tokens_(ranks ? ranks->tokens() : own_tokens_) {
    const auto E = static_cast<std::size_t>(terms.rule.experts), choices = size(tokens_ * terms.rule.topk);
    chosen_ = tape_.keep_array<std::int32_t>(choices);
    counts_ = tape_.keep_array<float>(static_cast<std::size_t>(terms.sequences) * E);
    kept_counts_ = tape_.keep_array<float>(E);
  }

  /// Writes the weights [tokens, K], and all members of `out` but `weights`.
  void decide(std::span<const float> logits, DType type, std::span<float> weights, ExpertChoices& out) {
    const bool assumed = terms_.assumed != nullptr;
    if (!assumed) out.gap = choose(logits);
    auto& threads = tape_.threads();
    kernels::choice_weights(threads, rule_of_weights(terms_), logits, chosen_, weights);
    kernels::round_to(threads, type, weights);
    if (!assumed) kernels::count_choices(terms_.rule, terms_.sequences, chosen_, counts_);
    balance(logits, out);
    const auto E = kept_counts_.size();
    for (std::size_t i = E; i < counts_.size(); ++i) counts_[i % E] += counts_[i];
    kept_ = chosen_;
    if (terms_.capacity_factor > 0) drop(weights);
    std::fill(kept_counts_.begin(), kept_counts_.end(), 0.0F);
    for (const auto expert : assumed ? kept_.first(0) : kept_)
      if (expert >= 0) kept_counts_[static_cast<std::size_t>(expert)] += 1;
    out.chosen = here(kept_);
    out.assumed = terms_.assumed;
    // If the tokens are on several ranks, each rank has an equal part of the capacity.
    if (terms_.capacity_factor > 0) out.most_rows = (capacity() * own_tokens_ + tokens_ - 1) / tokens_;
    out.counts = counts_.first(E);
    out.kept = kept_counts_;
  }

  std::int64_t tokens() const { return tokens_; }
  /// [B, E] gradient of the objective with respect to the sums of scores; empty: no balancing loss.
  std::span<const double> factor() const { return factor_; }
  std::span<const std::int32_t> chosen_here() const { return here(chosen_); }

 private:
  static std::size_t size(std::int64_t elements) { return static_cast<std::size_t>(elements); }

  /// Writes chosen_; returns ExpertChoices::gap.
  double choose(std::span<const float> logits) {
    auto& threads = tape_.threads();
    const auto bias = terms_.bias ? std::span<const float>(terms_.bias->value.floats()) : std::span<const float>{};
    if (terms_.balance != RouterBalance::sinkhorn)
      return kernels::choose_experts(threads, terms_.rule, logits, bias, chosen_);
    if (terms_.training)
      kernels::choose_by_sinkhorn(terms_.rule, logits, chosen_);
    else
      kernels::choose_experts(threads, rule_of_weights(terms_), logits, {}, chosen_);
    return ExpertChoices{}.gap;
  }

  void balance(std::span<const float> logits, ExpertChoices& out) {
    auto& threads = tape_.threads();
    const bool balances = terms_.balance == RouterBalance::aux_loss || terms_.balance == RouterBalance::seq_aux_loss;
    if (terms_.seed != 0 && balances && terms_.aux_coefficient != 0) {
      factor_ = tape_.keep_array<double>(2 * counts_.size());
      const auto sums = factor_.subspan(counts_.size());
      factor_ = factor_.first(counts_.size());
      kernels::balance_score_sums(threads, terms_.rule, terms_.sequences, logits, sums);
      out.aux_loss = balance_loss(terms_, tokens_, counts_, sums, factor_);
      for (auto& f : factor_) f *= terms_.aux_coefficient * terms_.seed;
    }
    if (terms_.seed != 0 && terms_.z_coefficient != 0)
      out.z_loss = kernels::router_z_loss(threads, terms_.rule.experts, logits);
  }

  std::int64_t capacity() const {
    return kernels::expert_capacity(tokens_, terms_.rule.topk, terms_.rule.experts, terms_.capacity_factor);
  }

  void drop(std::span<float> weights) {
    const auto kept = tape_.keep_array<std::int32_t>(chosen_.size());
    kept_ = kept;
    if (terms_.assumed) return;
    std::copy(chosen_.begin(), chosen_.end(), kept.begin());
    kernels::drop_choices(terms_.drop_policy, terms_.rule.experts, terms_.rule.topk, capacity(), terms_.sequences, kept,
                          weights);
  }

  /// The choices of this rank's tokens, of the choices `all` [tokens, K].
  std::span<const std::int32_t> here(std::span<const std::int32_t> all) const {
    if (!ranks_) return all;
    const auto K = size(terms_.rule.topk);
    const auto own = tape_.keep_array<std::int32_t>(size(own_tokens_) * K);
    take_own(tape_, *ranks_, K, all, own);
    return own;
  }

  Tape& tape_;
  const RouterTerms& terms_;
  const MicroBatchRanks* ranks_;
  std::int64_t own_tokens_, tokens_;
  std::span<std::int32_t> chosen_;      ///< [tokens, K]
  std::span<const std::int32_t> kept_;  ///< [tokens, K]
  std::span<float> counts_;             ///< [B, E]; after decide() the first [E] are sums over B
  std::span<float> kept_counts_;        ///< [E]
  std::span<double> factor_;
};

}  // namespace

void AssumedChoices::sort(std::int64_t tokens, std::int64_t topk, std::int64_t most,
                          std::span<std::int64_t> first_row) const {
  const auto experts = static_cast<std::int64_t>(first_row.size()) - 1, others = experts - count;
  const auto all = tokens * topk;
  const auto most_here = tokens * std::min(topk, count), least_here = tokens * std::max<std::int64_t>(0, topk - others);
  const auto here = spread == Spread::here ? most_here : spread == Spread::elsewhere ? least_here : 0;
  first_row[0] = 0;
  for (std::int64_t e = 0; e < experts; ++e) {
    const bool is_here = e >= first && e < first + count;
    // `rows` choices are divided equally over `among` experts, of which this one has the index `number`.
    const auto number = spread == Spread::balanced ? e : is_here ? e - first : e < first ? e : e - count;
    const auto among = spread == Spread::balanced ? experts : is_here ? count : others;
    const auto rows = spread == Spread::balanced ? all : is_here ? here : all - here;
    const auto own = rows * (number + 1) / among - rows * number / among;
    first_row[static_cast<std::size_t>(e) + 1] = first_row[static_cast<std::size_t>(e)] + std::min(own, most);
  }
}

ExpertChoices route(const Var& logits, const RouterTerms& terms, const MicroBatchRanks* ranks) {
  auto& tape = logits.tape();
  const auto& rule = terms.rule;
  const auto T = logits.shape().rows();
  if (logits.shape().width() != rule.experts || terms.sequences < 1 || T % terms.sequences != 0)
    throw ShapeError(text("router: logits are ", logits.shape(), "; expected a column for each of ", rule.experts,
                          " experts, and rows of ", terms.sequences, " sequences of equal length"));
  Routing routing(logits, terms, ranks);
  // The bias gets the load of the experts as its gradient, also where the logits want none.
  auto weights = tape.make({T, rule.topk}, logits.wants_grad() || (terms.bias && terms.bias->trained()));
  ExpertChoices out;
  out.experts = rule.experts;
  out.topk = rule.topk;
  const auto type = logits.value().dtype();
  const auto own = tape.read(logits);
  if (ranks) {
    const auto K = static_cast<std::size_t>(rule.topk);
    const auto all_logits = tape.scratch(static_cast<std::size_t>(routing.tokens() * rule.experts));
    const auto all_weights = tape.scratch(static_cast<std::size_t>(routing.tokens()) * K);
    const auto values = Tape::floats(all_weights).first(static_cast<std::size_t>(routing.tokens()) * K);
    const auto all = Tape::floats(all_logits).first(static_cast<std::size_t>(routing.tokens() * rule.experts));
    ranks->gather(tape, own, rule.experts, all);
    routing.decide(all, type, values, out);
    take_own<float>(tape, *ranks, K, values, weights.floats());
  } else {
    routing.decide(own, type, weights.floats(), out);
  }
  if (weights.wants_grad())
    tape.record<RouteNode>(weights, logits, terms, routing.chosen_here(), out.kept, routing.tokens(), routing.factor(),
                           tape.use(terms.bias));
  out.weights = std::move(weights);
  return out;
}

}  // namespace tessera::autograd
