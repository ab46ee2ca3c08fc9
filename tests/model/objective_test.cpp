// Objectives: the weights of tokens, and an objective that couples two samples.
#include "framework/model/objective.h"

#include <gtest/gtest.h>

#include <cmath>

#include "framework/options/choose.h"
#include "tests/model/built.h"
#include "tests/model/pair_objective.h"

namespace tessera::model {
namespace {

std::unique_ptr<Objective> chosen(const std::string& words) { return options::choose(objectives(), words).make(); }

/// Loss, gradients and metrics of one micro-batch.
struct Outcome {
  autograd::LossSum loss;
  std::vector<float> gradients;
  double margin = 0, accuracy = 0;
};
Outcome trained(Built& b, const TokenBatch& batch, const Objective& objective, const StepShare& share = {}) {
  nn::AuxiliaryLog log(report_extents(*b.model, objective));
  ForwardMode mode;
  mode.training = true;
  mode.objective = &objective;
  mode.share = share;
  mode.log = &log;
  Outcome out;
  std::fill(b.grads.begin(), b.grads.end(), 0.0F);
  {
    autograd::Tape tape(b.arena, b.threads, true);
    out.loss = b.model->loss(tape, batch, mode).total;
    tape.backward();
    tape.clear();
  }
  out.gradients = b.grads;
  if (log.extents().metrics == 2) out.margin = log.metric(0), out.accuracy = log.metric(1);
  return out;
}

double value_of(Built& b, const TokenBatch& batch, const Objective& objective) {
  autograd::Tape tape(b.arena, b.threads, false);
  ForwardMode mode;
  mode.objective = &objective;
  return b.model->loss(tape, batch, mode).total.sum;
}

const char* const llama =
    "position_embedding_type:rope normalization:RMSNorm hidden_act:swiglu ffn_hidden_size:24 add_bias_linear:false "
    "hidden_dropout_rate:0 attention_dropout_rate:0";

TEST(Objective, OnePairOfSamplesHasTheGradientOfTheCoupledLoss) {
  for (const std::string& words :
       {std::string(llama), "output_logit_softcap:2 init_method_std:0.2 " + std::string(llama),
        std::string("hidden_dropout_rate:0 attention_dropout_rate:0 recompute_method:uniform "
                    "recompute_granularity:full recompute_num_layers:1")}) {
    Built b(words);
    const Tokens tokens;
    const PairObjective objective;
    const auto out = trained(b, tokens.batch(), objective);
    EXPECT_EQ(out.loss.count, 1);
    EXPECT_NEAR(out.loss.sum, std::log1p(std::exp(-out.margin)), 1e-12);
    EXPECT_EQ(out.accuracy, out.margin > 0 ? 1 : 0);
    EXPECT_EQ(value_of(b, tokens.batch(), objective), out.loss.sum);  // an evaluation has the same value
    double square = 0;
    for (const double g : out.gradients) square += g * g;
    ASSERT_GT(square, 0) << words;
    const auto moved = [&](double step) {
      const auto before = b.values;
      for (std::size_t i = 0; i < b.values.size(); ++i) b.values[i] += static_cast<float>(step * out.gradients[i]);
      const auto sum = value_of(b, tokens.batch(), objective);
      b.values = before;
      return sum;
    };
    const double step = 2e-3 / std::sqrt(square);
    EXPECT_NEAR((moved(step) - moved(-step)) / (2 * step * square), 1, 1e-2) << words;
  }
}

TEST(Objective, TheShareOfAMicroBatchScalesItsGradients) {
  Built b(llama);
  const Tokens tokens;
  const auto cross_entropy = chosen("{}"), per_sample = chosen("{calculate_per_sample_loss: true}");
  const PairObjective pairs;
  for (const Objective* objective : std::vector<const Objective*>{cross_entropy.get(), per_sample.get(), &pairs}) {
    const auto one = trained(b, tokens.batch(), *objective),
               part = trained(b, tokens.batch(), *objective, {.scale = 64, .micro_batches = 2, .replicas = 4});
    for (std::size_t i = 0; i < one.gradients.size(); ++i) ASSERT_EQ(part.gradients[i], 8 * one.gradients[i]) << i;
  }
}

TEST(Objective, PerSampleIsTheMeanOfTheSamplesByThemselves) {
  Built b(llama);
  Tokens tokens;
  for (std::size_t i = 14; i < 23; ++i) tokens.mask[i] = 0;  // the second sample has three tokens that count
  const auto mean = chosen("{}"), per_sample = chosen("{calculate_per_sample_loss: true}");
  const auto whole = trained(b, tokens.batch(), *per_sample);
  auto rest = tokens;
  std::fill(rest.mask.begin() + 12, rest.mask.end(), 0.0F);
  const auto first = trained(b, rest.batch(), *mean);
  rest = tokens;
  std::fill(rest.mask.begin(), rest.mask.begin() + 12, 0.0F);
  const auto second = trained(b, rest.batch(), *mean);
  EXPECT_EQ(whole.loss.count, 11 + 3);  // what is reported is the mean over tokens, as in the other objectives
  EXPECT_NEAR(whole.loss.sum, first.loss.sum + second.loss.sum, 1e-6 * whole.loss.sum);
  double far = 0;
  for (std::size_t i = 0; i < whole.gradients.size(); ++i) {
    EXPECT_NEAR(whole.gradients[i], (first.gradients[i] + second.gradients[i]) / 2, 2e-6);
    far = std::max(far, std::abs(static_cast<double>(whole.gradients[i])));
  }
  EXPECT_GT(far, 1e-2);
}

TEST(Objective, WithoutATokenThatCountsLossAndGradientsAreZero) {
  Built b(llama);
  Tokens tokens;
  std::fill(tokens.mask.begin(), tokens.mask.end(), 0.0F);
  for (const auto* words : {"{}", "{calculate_per_sample_loss: true}", "{calculate_per_token_loss: true}"}) {
    const auto out = trained(b, tokens.batch(), *chosen(words));
    EXPECT_EQ(out.loss.sum, 0) << words;
    EXPECT_EQ(out.loss.count, 0) << words;
    EXPECT_EQ(out.gradients, std::vector<float>(out.gradients.size())) << words;
  }
}

TEST(Objective, TwoWaysToWeightTokensAreRefused) {
  try {
    chosen("{calculate_per_sample_loss: true, calculate_per_token_loss: true}");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("calculate_per_sample_loss and calculate_per_token_loss"),
              std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace tessera::model
