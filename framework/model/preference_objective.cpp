#include "framework/model/preference_objective.h"

#include <algorithm>
#include <array>

#include "framework/model/reference_scores.h"

namespace tessera::model {
namespace {

std::size_t first_of(const TokenBatch& batch, std::int64_t row) {
  return static_cast<std::size_t>(row * batch.seq_length);
}

/// Sums over the pairs of micro-batches.
class PairwiseObjective : public Objective {
 public:
  autograd::LossSum judge(const Losses& losses, std::span<float> seeds,
                          std::span<autograd::LossSum> metrics) const override {
    const auto pairs = losses.batch.samples / 2;
    must(2 * pairs == losses.batch.samples, "a micro-batch of pairs has two rows for each");
    const auto share = losses.share.scale / (static_cast<double>(pairs) * losses.share.parts());
    autograd::LossSum all;
    for (std::int64_t pair = 0; pair < pairs; ++pair) {
      const auto chosen = score(losses, 2 * pair), rejected = score(losses, 2 * pair + 1);
      const auto loss = loss_of(chosen, rejected);
      all += {loss.value, 1};
      report(loss, chosen, rejected, metrics);
      if (seeds.empty()) continue;
      seed(losses, 2 * pair, loss.by_chosen * share, seeds);
      seed(losses, 2 * pair + 1, loss.by_rejected * share, seeds);
    }
    return all;
  }
  std::vector<std::string> metrics() const override {
    return {"rewards/chosen", "rewards/rejected", "rewards/margins", "rewards/accuracies"};
  }

 protected:
  virtual CompletionScore score(const Losses& losses, std::int64_t row) const = 0;
  virtual PairLoss loss_of(const CompletionScore& chosen, const CompletionScore& rejected) const = 0;
  /// Adds to the seeds of a row, whose score has the gradient `gradient`.
  virtual void seed(const Losses& losses, std::int64_t row, double gradient, std::span<float> seeds) const = 0;
  virtual void report(const PairLoss& loss, const CompletionScore&, const CompletionScore&,
                      std::span<autograd::LossSum> metrics) const {
    const auto margin = loss.chosen_reward - loss.rejected_reward;
    metrics[0] += {loss.chosen_reward, 1};
    metrics[1] += {loss.rejected_reward, 1};
    metrics[2] += {margin, 1};
    metrics[3] += {margin > 0 ? 1.0 : 0.0, 1};
  }
};

/// Of log-probabilities.
class PreferenceObjective final : public PairwiseObjective {
 public:
  using Loss = PairLoss (*)(const PreferenceOptions&, const CompletionScore&, const CompletionScore&);
  PreferenceObjective(Loss loss, const PreferenceOptions& options, bool refers) : loss_(loss), options_(options) {
    if (refers) reference_ = std::make_unique<ReferenceScores>();
  }
  const ReferenceScores* reference() const override { return reference_.get(); }
  std::vector<std::string> metrics() const override {
    auto all = PairwiseObjective::metrics();
    all.insert(all.end(), {"logps/chosen", "logps/rejected"});
    return all;
  }

 private:
  CompletionScore score(const Losses& losses, std::int64_t row) const override {
    auto score = completion_score(losses, row);
    if (reference_) score.reference = reference_->of(losses.batch, row);
    return score;
  }
  PairLoss loss_of(const CompletionScore& chosen, const CompletionScore& rejected) const override {
    return loss_(options_, chosen, rejected);
  }
  void seed(const Losses& losses, std::int64_t row, double gradient, std::span<float> seeds) const override {
    const auto first = first_of(losses.batch, row);
    for (std::size_t i = first; i < first + static_cast<std::size_t>(losses.batch.seq_length); ++i)
      seeds[i] -= static_cast<float>(gradient * static_cast<double>(losses.batch.loss_mask[i]));
  }
  void report(const PairLoss& loss, const CompletionScore& chosen, const CompletionScore& rejected,
              std::span<autograd::LossSum> metrics) const override {
    PairwiseObjective::report(loss, chosen, rejected, metrics);
    metrics[4] += {chosen.policy, 1};
    metrics[5] += {rejected.policy, 1};
  }

  Loss loss_;
  PreferenceOptions options_;
  std::unique_ptr<ReferenceScores> reference_;
};

/// Of the scores of last tokens.
class RewardObjective final : public PairwiseObjective {
  CompletionScore score(const Losses& losses, std::int64_t row) const override {
    return {.policy = static_cast<double>(losses.each[last_token(losses.batch, row)])};
  }
  PairLoss loss_of(const CompletionScore& chosen, const CompletionScore& rejected) const override {
    return reward_loss(chosen, rejected);
  }
  void seed(const Losses& losses, std::int64_t row, double gradient, std::span<float> seeds) const override {
    seeds[last_token(losses.batch, row)] += static_cast<float>(gradient);
  }
  /// Index of the last token of a row that is not padding: its label is the last one.
  static std::size_t last_token(const TokenBatch& batch, std::int64_t row) {
    const auto first = first_of(batch, row), length = static_cast<std::size_t>(batch.seq_length);
    auto last = first + length;
    while (last > first && batch.labels[last - 1] < 0) --last;
    return std::min(last, first + length - 1);
  }
};

}  // namespace

CompletionScore completion_score(const Objective::Losses& losses, std::int64_t row) {
  CompletionScore score;
  const auto first = first_of(losses.batch, row);
  for (std::size_t i = first; i < first + static_cast<std::size_t>(losses.batch.seq_length); ++i) {
    const auto mask = static_cast<double>(losses.batch.loss_mask[i]);
    score.policy -= mask * static_cast<double>(losses.each[i]);
    score.tokens += mask;
  }
  return score;
}

std::optional<PairStage> pair_stage(const std::string& name) {
  constexpr std::array<std::pair<const char*, PairStage>, 4> all = {
      {{"dpo", PairStage::dpo}, {"simpo", PairStage::simpo}, {"orpo", PairStage::orpo}, {"rm", PairStage::rm}}};
  for (const auto& [known, stage] : all)
    if (name == known) return stage;
  return std::nullopt;
}

std::unique_ptr<Objective> make_preference_objective(PairStage stage, const PreferenceOptions& o) {
  switch (stage) {
    case PairStage::dpo:
      return std::make_unique<PreferenceObjective>(dpo_loss, o, true);
    case PairStage::simpo:
      return std::make_unique<PreferenceObjective>(simpo_loss, o, false);
    case PairStage::orpo:
      return std::make_unique<PreferenceObjective>(orpo_loss, o, false);
    case PairStage::rm:
      return std::make_unique<RewardObjective>();
  }
  throw BugError("a stage of pairs has an objective");
}

}  // namespace tessera::model
