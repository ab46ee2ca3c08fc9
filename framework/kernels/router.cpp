#include "framework/kernels/router.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <numeric>

#include "framework/base/error.h"
#include "framework/kernels/extents.h"
#include "framework/kernels/scratch.h"

namespace tessera::kernels {
namespace {

constexpr double never_zero = 1e-20;        // added to sums of sigmoids, as Megatron-LM does
constexpr std::size_t tokens_of_tile = 32;  // each takes some microseconds

/// Working memory for one token.
struct Token {
  explicit Token(const RouterRule& rule) : lease(static_cast<std::size_t>(2 * rule.experts + rule.groups + rule.topk)) {
    const auto E = static_cast<std::size_t>(rule.experts), G = static_cast<std::size_t>(rule.groups),
               K = static_cast<std::size_t>(rule.topk);
    const auto memory = lease.all();
    values = memory.first(E);
    groups = memory.subspan(E, G);
    chosen = memory.subspan(E + G, K);
    order = {reinterpret_cast<std::int32_t*>(memory.data() + E + G + K), E};
  }
  DoubleScratch lease;
  std::span<double> values, groups;
  std::span<double> chosen;  ///< scores of the chosen experts
  double sum = 1;            ///< weight k = scaling * chosen[k] / sum
  std::span<std::int32_t> order;
};

std::int64_t tokens(const RouterRule& rule, std::span<const float> logits) {
  const auto experts = static_cast<std::size_t>(rule.experts);
  if (rule.experts < 1 || rule.topk < 1 || rule.topk > rule.experts || logits.size() % experts != 0)
    throw ShapeError(text("router: ", logits.size(), " logits, ", rule.experts, " experts, top ", rule.topk,
                          "; the logits must be rows of all experts, and at most these can be chosen"));
  return static_cast<std::int64_t>(logits.size() / experts);
}

/// out = softmax(in), in double. Returns logsumexp(in).
template <class In>
double softmax(std::span<const In> in, std::span<double> out) {
  const double most = static_cast<double>(*std::max_element(in.begin(), in.end()));
  double sum = 0;
  for (std::size_t e = 0; e < in.size(); ++e) sum += out[e] = std::exp(static_cast<double>(in[e]) - most);
  for (auto& p : out) p /= sum;
  return most + std::log(sum);
}

double sigmoid(double x) { return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x)); }

/// The balance scores of a token, or with `normalised` false and sigmoid scores the plain sigmoids.
void scores(const RouterRule& rule, std::span<const float> logits, bool normalised, std::span<double> out) {
  if (rule.score == RouterScore::softmax) {
    softmax(logits, out);
    return;
  }
  double sum = never_zero;
  for (std::size_t e = 0; e < logits.size(); ++e) sum += out[e] = sigmoid(static_cast<double>(logits[e]));
  if (normalised)
    for (auto& s : out) s /= sum;
}

/// order = the `count` indices with the largest values, in descending order; among equal values the lower index first.
void largest(std::span<const double> values, std::size_t count, std::span<std::int32_t> order) {
  std::iota(order.begin(), order.end(), 0);
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count), order.end(),
                    [&](std::int32_t a, std::int32_t b) {
                      const double x = values[static_cast<std::size_t>(a)], y = values[static_cast<std::size_t>(b)];
                      return x > y || (x == y && a < b);
                    });
}

/// values[order[kept - 1]] - values[order[kept]]; infinity if `order` has only `kept` entries.
double gap_behind(std::span<const double> values, std::size_t kept, std::span<const std::int32_t> order) {
  if (kept >= values.size()) return std::numeric_limits<double>::infinity();
  return values[static_cast<std::size_t>(order[kept - 1])] - values[static_cast<std::size_t>(order[kept])];
}

/// Sets the values of all experts outside the best groups to -infinity. Returns the gap between the scores of kept and
/// other groups, divided by the number of values in a score.
double keep_best_groups(const RouterRule& rule, Token& token) {
  const auto size = static_cast<std::size_t>(rule.experts / rule.groups);
  const auto counted = static_cast<std::size_t>(std::max<std::int64_t>(rule.topk / rule.groups_kept, 1));
  const auto values = token.values;
  const auto order = token.order;
  for (std::size_t g = 0; g < token.groups.size(); ++g) {
    const auto group = values.subspan(g * size, size);
    largest(group, std::min(counted, size), order.first(size));
    token.groups[g] = 0;
    for (std::size_t i = 0; i < std::min(counted, size); ++i)
      token.groups[g] += group[static_cast<std::size_t>(order[i])];
  }
  const auto kept = static_cast<std::size_t>(rule.groups_kept);
  largest(token.groups, std::min(kept + 1, token.groups.size()), order.first(token.groups.size()));
  // The score of a group is a sum of n values: if every value changes by at most d, the score changes by at most n d.
  const auto gap = gap_behind(token.groups, kept, order) / static_cast<double>(std::min(counted, size));
  for (std::size_t i = kept; i < token.groups.size(); ++i)
    for (auto& v : values.subspan(static_cast<std::size_t>(order[i]) * size, size))
      v = -std::numeric_limits<double>::infinity();
  return gap;
}

/// smallest = min(smallest, value), atomically.
void lower(std::atomic<double>& smallest, double value) {
  auto now = smallest.load(std::memory_order_relaxed);
  while (value < now && !smallest.compare_exchange_weak(now, value, std::memory_order_relaxed)) {
  }
}

/// Whether the weights are softmax scores over all experts, so that their gradient needs the scores of all experts.
bool weighs_by_all(const RouterRule& rule) { return rule.score == RouterScore::softmax && rule.pre_softmax; }

/// Computes token.chosen and token.sum; where the weights depend on all experts, token.values has the scores of all.
void weigh(const RouterRule& rule, std::span<const float> logits, std::span<const std::int32_t> chosen, Token& token) {
  token.sum = 1;
  const auto logit = [&](std::size_t k) { return static_cast<double>(logits[static_cast<std::size_t>(chosen[k])]); };
  if (weighs_by_all(rule)) {
    softmax(logits, token.values);
    for (std::size_t k = 0; k < chosen.size(); ++k) token.chosen[k] = token.values[static_cast<std::size_t>(chosen[k])];
  } else if (rule.score == RouterScore::softmax) {
    for (std::size_t k = 0; k < chosen.size(); ++k) token.chosen[k] = logit(k);
    softmax(std::span<const double>(token.chosen), token.chosen);
  } else {
    double sum = never_zero;
    for (std::size_t k = 0; k < chosen.size(); ++k) sum += token.chosen[k] = sigmoid(logit(k));
    if (chosen.size() > 1) token.sum = sum;
  }
}

template <class Body>
void for_tokens(Threads& threads, const RouterRule& rule, std::int64_t count, const Body& body) {
  threads.parallel_for(static_cast<std::size_t>(count), tokens_of_tile, [&](std::size_t first, std::size_t last) {
    Token token(rule);
    for (auto t = first; t < last; ++t) body(t, token);
  });
}

}  // namespace

double choose_experts(Threads& threads, const RouterRule& rule, std::span<const float> logits,
                      std::span<const float> bias, std::span<std::int32_t> chosen) {
  const auto count = tokens(rule, logits);
  const auto E = static_cast<std::size_t>(rule.experts), K = static_cast<std::size_t>(rule.topk);
  expect_values("router", "chosen", chosen.size(), count * rule.topk);
  if (!bias.empty()) expect_values("router", "bias", bias.size(), rule.experts);
  std::atomic<double> smallest = std::numeric_limits<double>::infinity();
  for_tokens(threads, rule, count, [&](std::size_t t, Token& token) {
    const auto row = logits.subspan(t * E, E);
    if (rule.score == RouterScore::softmax && !rule.pre_softmax)
      std::copy(row.begin(), row.end(), token.values.begin());
    else
      scores(rule, row, false, token.values);
    if (!bias.empty())
      for (std::size_t e = 0; e < E; ++e) token.values[e] += static_cast<double>(bias[e]);
    if (rule.groups > 0) lower(smallest, keep_best_groups(rule, token));
    largest(token.values, std::min(K + 1, E), token.order);
    lower(smallest, gap_behind(token.values, K, token.order));
    std::copy_n(token.order.begin(), K, chosen.begin() + static_cast<std::ptrdiff_t>(t * K));
  });
  return smallest;
}

void choose_by_sinkhorn(const RouterRule& rule, std::span<const float> logits, std::span<std::int32_t> chosen) {
  const auto count = tokens(rule, logits);
  expect_values("router", "chosen", chosen.size(), count * rule.topk);
  if (count == 0) return;
  const auto T = static_cast<std::size_t>(count), E = static_cast<std::size_t>(rule.experts);
  constexpr double tolerance = 1e-4, never_zero_sum = 1e-8;
  constexpr int most_rounds = 10000;  // normally converges in some tens of rounds; NaN logits never converge
  const DoubleScratch lease(T * E + T + 2 * E);
  const auto memory = lease.all();
  const auto cost = memory.first(T * E), of_token = memory.subspan(T * E, T), of_expert = memory.subspan(T * E + T, E),
             sums = memory.subspan(T * E + T + E, E);
  std::fill(of_expert.begin(), of_expert.end(), 1.0);
  for (std::size_t i = 0; i < cost.size(); ++i) cost[i] = std::exp(static_cast<double>(logits[i]));
  double change = 1e9;
  for (int round = 0; round < most_rounds && change > tolerance; ++round) {
    std::fill(sums.begin(), sums.end(), 0.0);
    for (std::size_t t = 0; t < T; ++t) {
      const auto row = cost.subspan(t * E, E);
      of_token[t] = 1 / (static_cast<double>(T) *
                         (std::inner_product(row.begin(), row.end(), of_expert.begin(), 0.0) + never_zero_sum));
      for (std::size_t e = 0; e < E; ++e) sums[e] += row[e] * of_token[t];
    }
    change = 0;
    for (std::size_t e = 0; e < E; ++e) {
      const double now = 1 / (static_cast<double>(E) * (sums[e] + never_zero_sum));
      change += std::abs(of_expert[e] - now) / static_cast<double>(E);
      of_expert[e] = now;
    }
  }
  const auto K = static_cast<std::size_t>(rule.topk);
  const std::span<std::int32_t> order(reinterpret_cast<std::int32_t*>(sums.data()),
                                      E);  // of a token; sums are not needed any more
  for (std::size_t t = 0; t < T; ++t) {
    const auto row = cost.subspan(t * E, E);
    for (std::size_t e = 0; e < E; ++e) row[e] *= of_expert[e] * of_token[t];
    largest(row, K, order);
    std::copy_n(order.begin(), K, chosen.begin() + static_cast<std::ptrdiff_t>(t * K));
  }
}

void choice_weights(Threads& threads, const RouterRule& rule, std::span<const float> logits,
                    std::span<const std::int32_t> chosen, std::span<float> weights) {
  const auto count = tokens(rule, logits);
  const auto E = static_cast<std::size_t>(rule.experts), K = static_cast<std::size_t>(rule.topk);
  expect_values("router", "chosen", chosen.size(), count * rule.topk);
  expect_values("router", "weights", weights.size(), count * rule.topk);
  for_tokens(threads, rule, count, [&](std::size_t t, Token& token) {
    weigh(rule, logits.subspan(t * E, E), chosen.subspan(t * K, K), token);
    for (std::size_t k = 0; k < K; ++k)
      weights[t * K + k] = static_cast<float>(rule.scaling * token.chosen[k] / token.sum);
  });
}

void choice_weights_backward(Threads& threads, const RouterRule& rule, std::span<const float> logits,
                             std::span<const std::int32_t> chosen, std::span<const float> dweights,
                             std::span<float> dlogits) {
  const auto count = tokens(rule, logits);
  const auto E = static_cast<std::size_t>(rule.experts), K = static_cast<std::size_t>(rule.topk);
  expect_values("router", "chosen", chosen.size(), count * rule.topk);
  expect_values("router", "dweights", dweights.size(), count * rule.topk);
  expect_values("router", "dlogits", dlogits.size(), count * rule.experts);
  for_tokens(threads, rule, count, [&](std::size_t t, Token& token) {
    const auto mine = chosen.subspan(t * K, K);
    const auto out = dlogits.subspan(t * E, E);
    weigh(rule, logits.subspan(t * E, E), mine, token);
    // With w_k = s_k / sum: the gradient of the score is (dw_k - sum_j dw_j w_j) / sum, for a sum that is not constant.
    double mean = 0;
    for (std::size_t k = 0; k < K; ++k)
      mean += rule.scaling * static_cast<double>(dweights[t * K + k]) * token.chosen[k] / token.sum;
    const auto dweight = [&](std::size_t k) { return rule.scaling * static_cast<double>(dweights[t * K + k]); };
    if (weighs_by_all(rule)) {
      for (std::size_t e = 0; e < E; ++e) out[e] -= static_cast<float>(token.values[e] * mean);
      for (std::size_t k = 0; k < K; ++k)
        out[static_cast<std::size_t>(mine[k])] += static_cast<float>(token.chosen[k] * dweight(k));
      return;
    }
    for (std::size_t k = 0; k < K; ++k) {
      const double s = token.chosen[k];
      double d = s * (dweight(k) - mean);  // softmax over the chosen
      if (rule.score == RouterScore::sigmoid) d = (dweight(k) - (K > 1 ? mean : 0)) / token.sum * s * (1 - s);
      out[static_cast<std::size_t>(mine[k])] += static_cast<float>(d);
    }
  });
}

void count_choices(const RouterRule& rule, std::int64_t sequences, std::span<const std::int32_t> chosen,
                   std::span<float> counts) {
  expect_values("router", "counts", counts.size(), sequences * rule.experts);
  std::fill(counts.begin(), counts.end(), 0.0F);
  if (chosen.empty()) return;
  const auto of_sequence = chosen.size() / static_cast<std::size_t>(sequences);
  for (std::size_t i = 0; i < chosen.size(); ++i)
    counts[i / of_sequence * static_cast<std::size_t>(rule.experts) + static_cast<std::size_t>(chosen[i])] += 1;
}

void balance_score_sums(Threads& threads, const RouterRule& rule, std::int64_t sequences, std::span<const float> logits,
                        std::span<double> sums) {
  const auto count = tokens(rule, logits);
  expect_values("router", "sums", sums.size(), sequences * rule.experts);
  std::fill(sums.begin(), sums.end(), 0.0);
  if (count == 0) return;
  const auto E = static_cast<std::size_t>(rule.experts), of_sequence = static_cast<std::size_t>(count / sequences);
  // Each sequence is summed by one thread, in the order of its tokens.
  threads.parallel_for(static_cast<std::size_t>(sequences), 1, [&](std::size_t first, std::size_t last) {
    const DoubleScratch lease(E);
    const auto score = lease.all();
    for (auto t = first * of_sequence; t < last * of_sequence; ++t) {
      scores(rule, logits.subspan(t * E, E), true, score);
      for (std::size_t e = 0; e < E; ++e) sums[t / of_sequence * E + e] += score[e];
    }
  });
}

void balance_scores_backward(Threads& threads, const RouterRule& rule, std::int64_t sequences,
                             std::span<const float> logits, std::span<const double> factor, std::span<float> dlogits) {
  const auto count = tokens(rule, logits);
  expect_values("router", "factor", factor.size(), sequences * rule.experts);
  expect_values("router", "dlogits", dlogits.size(), count * rule.experts);
  if (count == 0) return;
  const auto E = static_cast<std::size_t>(rule.experts), of_sequence = static_cast<std::size_t>(count / sequences);
  for_tokens(threads, rule, count, [&](std::size_t t, Token& token) {
    const auto row = logits.subspan(t * E, E);
    const auto f = factor.subspan(t / of_sequence * E, E);
    scores(rule, row, true, token.values);
    double mean = 0;
    for (std::size_t e = 0; e < E; ++e) mean += f[e] * token.values[e];
    for (std::size_t e = 0; e < E; ++e) {
      double d = token.values[e] * (f[e] - mean);
      if (rule.score == RouterScore::sigmoid) d *= 1 - sigmoid(static_cast<double>(row[e]));
      dlogits[t * E + e] += static_cast<float>(d);
    }
  });
}

double router_z_loss(Threads& threads, std::int64_t experts, std::span<const float> logits) {
  const RouterRule rule{experts, 1};
  const auto count = tokens(rule, logits);
  if (count == 0) return 0;
  const auto E = static_cast<std::size_t>(experts);
  const double sum =
      threads.parallel_sum(static_cast<std::size_t>(count), tokens_of_tile, [&](std::size_t first, std::size_t last) {
        Token token(rule);
        double of_tile = 0;
        for (auto t = first; t < last; ++t) {
          const double z = softmax(logits.subspan(t * E, E), token.values);
          of_tile += z * z;
        }
        return of_tile;
      });
  return sum / static_cast<double>(count);
}

void router_z_loss_backward(Threads& threads, std::int64_t experts, std::span<const float> logits, double factor,
                            std::span<float> dlogits) {
  const RouterRule rule{experts, 1};
  const auto count = tokens(rule, logits);
  expect_values("router", "dlogits", dlogits.size(), count * experts);
  const auto E = static_cast<std::size_t>(experts);
  for_tokens(threads, rule, count, [&](std::size_t t, Token& token) {
    const double z = softmax(logits.subspan(t * E, E), token.values);
    const double slope = 2 * factor * z / static_cast<double>(count);
    for (std::size_t e = 0; e < E; ++e) dlogits[t * E + e] += static_cast<float>(slope * token.values[e]);
  });
}

}  // namespace tessera::kernels
