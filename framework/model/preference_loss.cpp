#include "framework/model/preference_loss.h"

#include <algorithm>
#include <cmath>

#include "framework/base/error.h"

namespace tessera::model {
namespace {

double logistic(double x) { return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x)); }
double log_logistic(double x) { return x >= 0 ? -std::log1p(std::exp(-x)) : x - std::log1p(std::exp(x)); }
/// The derivative of the logistic function.
double slope(double x) { return logistic(x) * logistic(-x); }

/// A function of one number, and its derivative there.
struct Curve {
  double value = 0, slope = 0;
};

/// -(1 - e) log s(x) - e log s(-x).
Curve smoothed(double x, double e) {
  return {-(1 - e) * log_logistic(x) - e * log_logistic(-x), -(1 - e) * logistic(-x) + e * logistic(x)};
}
Curve hinge(double x) { return x < 1 ? Curve{1 - x, -1} : Curve{}; }
Curve square(double x) { return {x * x, 2 * x}; }
/// (-(1 - e) log s(x) + e log s(-x)) / (1 - 2 e).
Curve robust(double x, double e) {
  const auto by = 1 - 2 * e;
  return {(-(1 - e) * log_logistic(x) + e * log_logistic(-x)) / by, (-(1 - e) * logistic(-x) - e * logistic(x)) / by};
}
/// s(x) (log s(x) - log(1 - e)) + s(-x) (log s(-x) - log e).
Curve exo_pair(double x, double e) {
  const auto right = log_logistic(x) - std::log1p(-e), wrong = log_logistic(-x) - std::log(e);
  // The derivatives of the logarithms cancel: s(x) s(-x) - s(-x) s(x).
  return {logistic(x) * right + logistic(-x) * wrong, slope(x) * (right - wrong)};
}

/// Of a function of `factor` x (chosen ratio / chosen tokens - rejected ratio / rejected tokens).
PairLoss of_difference(const Curve& curve, double factor, double chosen_tokens = 1, double rejected_tokens = 1) {
  return {.value = curve.value,
          .by_chosen = curve.slope * factor / chosen_tokens,
          .by_rejected = -curve.slope * factor / rejected_tokens};
}

/// `b`: beta; `chosen`, `rejected`: log-probability ratios.
PairLoss nca_pair(double b, double chosen, double rejected) {
  const auto c = b * chosen, r = b * rejected;
  return {.value = -log_logistic(c) - 0.5 * log_logistic(-c) - 0.5 * log_logistic(-r),
          .by_chosen = b * (-logistic(-c) + 0.5 * logistic(c)),
          .by_rejected = b * 0.5 * logistic(r)};
}

PairLoss sppo_hard(double b, double chosen, double rejected) {
  const auto c = square(chosen - 0.5 / b), r = square(rejected + 0.5 / b);
  return {.value = c.value + r.value, .by_chosen = c.slope, .by_rejected = r.slope};
}

PairLoss apo_zero(double b, double chosen, double rejected) {
  const auto c = b * chosen, r = b * rejected;
  return {.value = 1 - logistic(c) + logistic(r), .by_chosen = -b * slope(c), .by_rejected = b * slope(r)};
}

PairLoss apo_down(double b, double chosen, double rejected) {
  const auto c = b * chosen, d = b * (chosen - rejected);
  return {.value = logistic(c) + 1 - logistic(d), .by_chosen = b * (slope(c) - slope(d)), .by_rejected = b * slope(d)};
}

/// `chosen`, `rejected`: ratios to the reference; n, m: tokens.
PairLoss of_ratios(const PreferenceOptions& o, double chosen, double rejected, double n, double m) {
  const auto b = o.dpo_beta, e = o.dpo_label_smoothing, d = chosen - rejected, mean = chosen / n - rejected / m;
  switch (o.dpo_loss_type) {
    case PreferenceLoss::sigmoid:
      return of_difference(smoothed(b * d, e), b);
    case PreferenceLoss::hinge:
      return of_difference(hinge(b * d), b);
    case PreferenceLoss::ipo:
      return of_difference(square(mean - 0.5 / b), 1, n, m);
    case PreferenceLoss::robust:
      return of_difference(robust(b * d, e), b);
    case PreferenceLoss::exo_pair:
      return of_difference(exo_pair(b * d, e), b);
    case PreferenceLoss::nca_pair:
      return nca_pair(b, chosen, rejected);
    case PreferenceLoss::sppo_hard:
      return sppo_hard(b, chosen, rejected);
    case PreferenceLoss::apo_zero:
      return apo_zero(b, chosen, rejected);
    case PreferenceLoss::apo_down:
      return apo_down(b, chosen, rejected);
    case PreferenceLoss::sigmoid_norm:
      return of_difference(smoothed(b * mean, 0), b, n, m);
  }
  throw BugError("a loss of pairs has a formula");
}

double tokens_of(const CompletionScore& completion) { return std::max(completion.tokens, 1.0); }

Curve simple(const PreferenceOptions& o, double x) {
  const auto b = o.simpo_beta;
  if (o.simpo_loss_type == SimpleLoss::ipo) return square(x - 0.5 / b);
  const auto curve = o.simpo_loss_type == SimpleLoss::hinge ? hinge(b * x) : smoothed(b * x, o.simpo_label_smoothing);
  return {curve.value, b * curve.slope};
}

/// Log odds of a mean log-probability. It is below 0; -1e-7 is the resolution of fp32 at probability 1.
Curve log_odds(double mean) {
  constexpr double most = -1e-7;
  if (mean > most) return {most - std::log(-std::expm1(most)), 0};
  const auto rest = -std::expm1(mean);
  return {mean - std::log(rest), 1 / rest};
}

}  // namespace

PairLoss dpo_loss(const PreferenceOptions& o, const CompletionScore& chosen, const CompletionScore& rejected) {
  const auto c = chosen.policy - chosen.reference, r = rejected.policy - rejected.reference;
  auto loss = of_ratios(o, c, r, tokens_of(chosen), tokens_of(rejected));
  loss.value -= o.pref_ftx * chosen.mean();
  loss.by_chosen -= o.pref_ftx / tokens_of(chosen);
  loss.chosen_reward = o.dpo_beta * c;
  loss.rejected_reward = o.dpo_beta * r;
  return loss;
}

PairLoss simpo_loss(const PreferenceOptions& o, const CompletionScore& chosen, const CompletionScore& rejected) {
  const auto curve = simple(o, chosen.mean() - rejected.mean() - o.gamma_beta_ratio);
  auto loss = of_difference(curve, 1, tokens_of(chosen), tokens_of(rejected));
  loss.chosen_reward = o.simpo_beta * chosen.mean();
  loss.rejected_reward = o.simpo_beta * rejected.mean();
  return loss;
}

PairLoss orpo_loss(const PreferenceOptions& o, const CompletionScore& chosen, const CompletionScore& rejected) {
  const auto c = log_odds(chosen.mean()), r = log_odds(rejected.mean());
  const auto ratio = smoothed(c.value - r.value, 0);
  return {.value = o.orpo_beta * ratio.value - chosen.mean(),
          .by_chosen = (o.orpo_beta * ratio.slope * c.slope - 1) / tokens_of(chosen),
          .by_rejected = -o.orpo_beta * ratio.slope * r.slope / tokens_of(rejected),
          .chosen_reward = o.orpo_beta * chosen.mean(),
          .rejected_reward = o.orpo_beta * rejected.mean()};
}

PairLoss reward_loss(const CompletionScore& chosen, const CompletionScore& rejected) {
  auto loss = of_difference(smoothed(chosen.policy - rejected.policy, 0), 1);
  loss.chosen_reward = chosen.policy;
  loss.rejected_reward = rejected.policy;
  return loss;
}

}  // namespace tessera::model
