// Cross-entropy of the next token. How tokens are weighted follows Megatron-LM (training/utils and schedules: the mean
// of each micro-batch, or the sum with calculate_per_token_loss) and MindSpeed-MM (calculate_per_sample_loss).

#include "framework/model/objective.h"

namespace tessera::model {
namespace {

struct CrossEntropyOptions {
  bool calculate_per_token_loss = false, calculate_per_sample_loss = false;
};

void describe(options::Schema<CrossEntropyOptions>& s) {
  using O = CrossEntropyOptions;
  s.when_changed(options::Change::told);
  s.option("calculate_per_token_loss", &O::calculate_per_token_loss,
           "Average the loss over all tokens of a step; false: average over each micro-batch first.");
  s.option("calculate_per_sample_loss", &O::calculate_per_sample_loss,
           "Average the loss over the tokens of each sample first, then over the samples of a step; a sample without "
           "labels counts as loss 0.")
      .must(
          "one weight of tokens",
          [](const O& o) { return !o.calculate_per_sample_loss || !o.calculate_per_token_loss; },
          [](const O&) {
            return std::string("calculate_per_sample_loss and calculate_per_token_loss are two ways to weight tokens");
          },
          "give one of them", {"calculate_per_token_loss"});
}

double sum_of(std::span<const float> values) {
  double sum = 0;
  for (const auto value : values) sum += value;
  return sum;
}

/// The mean over the tokens of a micro-batch; or, for calculate_per_token_loss, their sum.
class TokenMean final : public Objective {
 public:
  explicit TokenMean(bool sums) : sums_(sums) {}
  bool weighs_tokens() const override { return true; }
  bool sums_over_step() const override { return sums_; }
  TokenWeights weigh(autograd::Tape&, const TokenBatch& batch, const StepShare& share) const override {
    const auto tokens = sums_ ? 1 : sum_of(batch.loss_mask) * share.micro_batches * share.replicas;
    return {.seed = tokens > 0 ? share.scale / tokens : 0};
  }

 private:
  bool sums_;
};

/// The mean over samples of the mean over the tokens of each.
class SampleMean final : public Objective {
 public:
  bool weighs_tokens() const override { return true; }
  TokenWeights weigh(autograd::Tape& tape, const TokenBatch& batch, const StepShare& share) const override {
    const auto weights = tape.keep_array<float>(batch.loss_mask.size());
    const auto length = static_cast<std::size_t>(batch.seq_length);
    for (std::size_t first = 0; first < weights.size(); first += length) {
      const auto mask = batch.loss_mask.subspan(first, length);
      const auto tokens = sum_of(mask);
      for (std::size_t i = 0; i < length; ++i)
        weights[first + i] = tokens > 0 ? static_cast<float>(mask[i] / tokens) : 0;
    }
    return {.seed = share.scale / (static_cast<double>(batch.samples) * share.parts()), .each = weights};
  }
};

std::unique_ptr<Objective> make_cross_entropy(const CrossEntropyOptions& o) {
  if (o.calculate_per_sample_loss) return std::make_unique<SampleMean>();
  return std::make_unique<TokenMean>(o.calculate_per_token_loss);
}

}  // namespace

const Objective& mean_cross_entropy() {
  static const TokenMean mean(false);
  return mean;
}

const Objective& summed_cross_entropy() {
  static const TokenMean sum(true);
  return sum;
}

void register_cross_entropy(ObjectiveRegistry& registry) {
  registry.add("cross_entropy", make_cross_entropy, "Cross-entropy of the next token.");
}

}  // namespace tessera::model
