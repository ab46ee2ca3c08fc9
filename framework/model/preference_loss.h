#pragma once

#include "framework/model/preference_options.h"

namespace tessera::model {

/// The log-probabilities of a completion: sums over its tokens, in policy and reference model.
struct CompletionScore {
  double policy = 0, reference = 0;
  double tokens = 0;  ///< number of its tokens
  double mean() const { return policy / (tokens > 0 ? tokens : 1); }
};

/// The loss of a pair, and its derivatives with respect to the policy's sums.
struct PairLoss {
  double value = 0;
  double by_chosen = 0, by_rejected = 0;
  double chosen_reward = 0, rejected_reward = 0;  ///< implicit rewards, which are reported
};

// The losses of pairs. c, r: log-probabilities of the chosen and the rejected completion; c', r': in the reference; s:
// the logistic function; b: beta; e: label smoothing; D = (c - c') - (r - r').

/// Direct preference optimization. Rewards: b (c - c') and b (r - r').
///
///   sigmoid      -(1 - e) log s(b D) - e log s(-b D)
///   hinge        max(0, 1 - b D)
///   ipo          (D - 1 / (2 b))^2, each log-probability divided by the tokens of its completion
///   robust       (-(1 - e) log s(b D) + e log s(-b D)) / (1 - 2 e)
///   exo_pair     s(b D) (log s(b D) - log(1 - e)) + s(-b D) (log s(-b D) - log e)
///   nca_pair     -log s(b (c - c')) - (log s(-b (c - c')) + log s(-b (r - r'))) / 2
///   sppo_hard    (c - c' - 1 / (2 b))^2 + (r - r' + 1 / (2 b))^2
///   apo_zero     1 - s(b (c - c')) + s(b (r - r'))
///   apo_down     s(b (c - c')) + 1 - s(b D)
///   sigmoid_norm -log s(b D), each log-probability divided by the tokens of its completion
///
/// With pref_ftx f, each adds -f c / (tokens of the chosen completion). Sources: Rafailov et al., arXiv:2305.18290;
/// Zhao et al., arXiv:2305.10425; Azar et al., arXiv:2310.12036; Chowdhury et al., arXiv:2403.00409; Ji et al.,
/// arXiv:2402.00856; Chen et al., arXiv:2402.05369; Wu et al., arXiv:2405.00675; D'Oosterlinck et al.,
/// arXiv:2408.06266; definitions as in TRL 1.16, smoothing of sigmoid as in LLaMA-Factory and MindSpeed-LLM.
PairLoss dpo_loss(const PreferenceOptions& o, const CompletionScore& chosen, const CompletionScore& rejected);

/// Without a reference, of means over tokens: sigmoid of b (c - r - gamma_beta_ratio), with smoothing; hinge and ipo
/// alike. Rewards: b c and b r. Source: Meng et al., arXiv:2405.14734.
PairLoss simpo_loss(const PreferenceOptions& o, const CompletionScore& chosen, const CompletionScore& rejected);

/// Without a reference, of means over tokens: -c - b log s(log(odds(c) / odds(r))). Rewards: b c and b r. Source: Hong
/// et al., arXiv:2403.07691; both terms over the tokens of the completion only.
PairLoss orpo_loss(const PreferenceOptions& o, const CompletionScore& chosen, const CompletionScore& rejected);

/// -log s(chosen - rejected) of two rewards, which are CompletionScore::policy.
PairLoss reward_loss(const CompletionScore& chosen, const CompletionScore& rejected);

}  // namespace tessera::model
