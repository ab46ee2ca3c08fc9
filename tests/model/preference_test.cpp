// Losses of pairs: recorded values of TRL, derivatives, and the objectives made of them.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "framework/model/preference_loss.h"
#include "framework/model/preference_objective.h"
#include "framework/model/reference_scores.h"
#include "tests/model/built.h"

namespace tessera::model {
namespace {

using Loss = std::function<PairLoss(const CompletionScore&, const CompletionScore&)>;

/// A loss as the recorded cases name it.
Loss loss_of(const nlohmann::json& named) {
  const std::string type = named.at("loss_type");
  PreferenceOptions o;
  o.dpo_beta = o.simpo_beta = o.orpo_beta = named.at("beta");
  o.dpo_label_smoothing = named.value("label_smoothing", 0.0);
  o.pref_ftx = named.value("pref_ftx", 0.0);
  o.gamma_beta_ratio = named.value("gamma_beta_ratio", 0.0);
  for (const auto& [word, loss] : words(PreferenceLoss()))
    if (word == type) o.dpo_loss_type = loss;
  const auto function = type == "simpo" ? simpo_loss : type == "orpo" ? orpo_loss : dpo_loss;
  return [=](const auto& chosen, const auto& rejected) { return function(o, chosen, rejected); };
}

nlohmann::json recorded() {
  std::ifstream file(TESTS_DATA "/preference/losses.json");
  return nlohmann::json::parse(file);
}

/// The log-probabilities were recorded in fp32, the losses of those of fp64.
TEST(PreferenceLoss, OfRecordedPairsIsThatOfTrl) {
  std::set<std::string> seen;
  for (const auto& one : recorded())
    for (const auto& named : one.at("losses")) {
      const auto loss = loss_of(named);
      double sum = 0, chosen_reward = 0, rejected_reward = 0, right = 0;
      for (const auto& pair : one.at("pairs")) {
        const CompletionScore chosen{pair.at("chosen"), pair.at("ref_chosen"), pair.at("chosen_tokens")},
            rejected{pair.at("rejected"), pair.at("ref_rejected"), pair.at("rejected_tokens")};
        const auto of_pair = loss(chosen, rejected);
        sum += of_pair.value;
        chosen_reward += of_pair.chosen_reward;
        rejected_reward += of_pair.rejected_reward;
        right += of_pair.chosen_reward > of_pair.rejected_reward ? 1 : 0;
      }
      const auto pairs = static_cast<double>(one.at("pairs").size());
      const auto expect = [&](const char* key, double value) {
        const double expected = named.at(key);
        EXPECT_NEAR(value / pairs, expected, 1e-5 * std::max(1.0, std::abs(expected)))
            << named.at("name") << " " << key;
      };
      expect("loss", sum);
      expect("rewards/chosen", chosen_reward);
      expect("rewards/rejected", rejected_reward);
      expect("rewards/margins", chosen_reward - rejected_reward);
      expect("rewards/accuracies", right);
      seen.insert(named.at("loss_type"));
    }
  EXPECT_EQ(seen.size(), words(PreferenceLoss()).size() + 2);  // every loss of dpo, simpo and orpo
}

/// By central differences, at random log-probabilities.
TEST(PreferenceLoss, HasTheDerivativesOfItsValue) {
  const auto seed = std::random_device()();
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> log_probability(-9, -2), smoothing(0.05, 0.45), factor(0.05, 2);
  std::vector<std::pair<std::string, Loss>> all = {{"rm", reward_loss}};
  for (int draw = 0; draw < 20; ++draw) {
    PreferenceOptions o;
    o.dpo_beta = o.simpo_beta = o.orpo_beta = factor(random);
    o.dpo_label_smoothing = o.simpo_label_smoothing = smoothing(random);
    for (const auto& [word, type] : words(PreferenceLoss())) {
      o.dpo_loss_type = type;
      o.pref_ftx = word == "hinge" ? 0 : factor(random);  // with it the corner of a hinge is not at the value 0
      all.emplace_back(word, [=](const auto& c, const auto& r) { return dpo_loss(o, c, r); });
    }
    for (const auto& [word, type] : words(SimpleLoss())) {
      o.simpo_loss_type = type;
      all.emplace_back(text("simpo ", word), [=](const auto& c, const auto& r) { return simpo_loss(o, c, r); });
    }
    all.emplace_back("orpo", [=](const auto& c, const auto& r) { return orpo_loss(o, c, r); });
  }
  constexpr double step = 1e-5;
  for (const auto& [name, loss] : all) {
    CompletionScore chosen{log_probability(random), log_probability(random), 4},
        rejected{log_probability(random), log_probability(random), 7};
    const auto at = loss(chosen, rejected);
    const auto difference = [&, &of = loss](double& moved) {
      const auto kept = moved;
      moved = kept + step;
      const auto more = of(chosen, rejected).value;
      moved = kept - step;
      const auto less = of(chosen, rejected).value;
      moved = kept;
      return (more - less) / (2 * step);
    };
    const auto tolerance = [](double value) { return 1e-5 * std::max(1.0, std::abs(value)); };
    if (name.find("hinge") != std::string::npos && std::abs(at.value) < 1e-3) continue;  // near the corner
    EXPECT_NEAR(difference(chosen.policy), at.by_chosen, tolerance(at.by_chosen)) << name << ", seed " << seed;
    EXPECT_NEAR(difference(rejected.policy), at.by_rejected, tolerance(at.by_rejected)) << name << ", seed " << seed;
  }
}

TEST(PreferenceLoss, OfExtremeLogProbabilitiesIsFinite) {
  const auto cases = recorded();
  for (const auto& named : cases[0].at("losses"))
    for (const double large : {0.0, -1e-12, -1.0, -1e5}) {
      const auto loss = loss_of(named)({.policy = large, .reference = -3, .tokens = 2}, {-1e4, -1, 3});
      EXPECT_TRUE(std::isfinite(loss.value) && std::isfinite(loss.by_chosen) && std::isfinite(loss.by_rejected))
          << named.at("name") << " at " << large;
    }
}

TEST(PairStage, IsFoundByItsName) {
  EXPECT_EQ(pair_stage("dpo"), PairStage::dpo);
  EXPECT_EQ(pair_stage("sft"), std::nullopt);
}

/// What an objective makes of token losses alone: value, seeds and metrics.
struct Judged {
  autograd::LossSum loss;
  std::vector<float> seeds;
  std::vector<autograd::LossSum> metrics;
};
Judged judged(const Objective& objective, const TokenBatch& batch, std::span<const float> each,
              const StepShare& share = {}) {
  Judged out;
  out.seeds.resize(each.size());
  out.metrics.resize(objective.metrics().size());
  out.loss = objective.judge({batch, each, share}, out.seeds, out.metrics);
  return out;
}

TEST(PreferenceObjective, SeedsOnlyTokensOfCompletionsWithTheGradientOfTheLoss) {
  Tokens tokens;
  for (std::size_t i = 12; i < 18; ++i) tokens.mask[i] = 0;
  std::vector<float> each(24);
  for (std::size_t i = 0; i < each.size(); ++i) each[i] = 0.25F + static_cast<float>(i % 5) / 8;
  PreferenceOptions o;
  o.pref_ftx = 0.5;
  for (const auto stage : {PairStage::dpo, PairStage::simpo, PairStage::orpo}) {
    const auto objective = make_preference_objective(stage, o);
    if (const auto* reference = objective->reference())
      judged(*reference, tokens.batch(), std::vector<float>(24, 0.5F));
    const auto at = judged(*objective, tokens.batch(), each, {.scale = 8, .micro_batches = 2, .replicas = 2});
    EXPECT_EQ(at.loss.count, 1);
    EXPECT_EQ(at.metrics.size(), 6U);
    for (std::size_t i = 0; i < each.size(); ++i) {
      auto moved = each;
      constexpr float step = 1.0F / 64;  // exact
      moved[i] = each[i] + step;
      const auto more = judged(*objective, tokens.batch(), moved).loss.sum;
      moved[i] = each[i] - step;
      const auto less = judged(*objective, tokens.batch(), moved).loss.sum;
      EXPECT_NEAR(at.seeds[i], 2 * (more - less) / (2.0 * step), 1e-4) << i;
      if (tokens.mask[i] == 0) {
        EXPECT_EQ(at.seeds[i], 0) << i;
      }
    }
  }
}

TEST(PreferenceObjective, NeedsTheReferenceForTheRowsItJudges) {
  Tokens tokens;
  const auto objective = make_preference_objective(PairStage::dpo, {});
  const std::vector<float> each(24, 0.5F);
  EXPECT_THROW(judged(*objective, tokens.batch(), each), BugError);
  const auto& reference = *objective->reference();
  judged(reference, tokens.batch(), each);
  EXPECT_NEAR(judged(*objective, tokens.batch(), each).loss.sum, std::log(2.0), 1e-12);  // equal to the reference
  EXPECT_TRUE(reference.has(tokens.batch()));
  EXPECT_EQ(reference.take_added().size(), 2U);
  auto other = tokens;
  other.labels[23] = 1;
  EXPECT_FALSE(reference.has(other.batch()));
  EXPECT_THROW(judged(*objective, other.batch(), each), BugError);
}

TEST(PreferenceObjective, OfRewardsTakesTheScoreOfEachRowsLastToken) {
  Tokens tokens;
  for (std::size_t i = 12 + 7; i < 24; ++i) tokens.labels[i] = -1;  // the second row has eight tokens
  std::vector<float> scores(24);
  for (std::size_t i = 0; i < scores.size(); ++i) scores[i] = static_cast<float>(i) / 4;
  const auto objective = make_preference_objective(PairStage::rm, {});
  const auto at = judged(*objective, tokens.batch(), scores);
  const double chosen = 11.0 / 4, rejected = (12 + 7) / 4.0;
  EXPECT_NEAR(at.loss.sum, std::log1p(std::exp(rejected - chosen)), 1e-12);
  const auto slope = 1 / (1 + std::exp(chosen - rejected));
  for (std::size_t i = 0; i < scores.size(); ++i)
    EXPECT_NEAR(at.seeds[i], i == 11 ? -slope : i == 19 ? slope : 0, 1e-7) << i;
  EXPECT_EQ(at.metrics[2].sum, chosen - rejected);
  EXPECT_EQ(at.metrics[3].sum, 0);
}

TEST(ScoreHead, OfAModelHasTheGradientOfTheRewards) {
  for (const std::string words :
       {"score_head:true hidden_dropout_rate:0 attention_dropout_rate:0",
        "score_head:true untie_embeddings_and_output_weights:true position_embedding_type:rope normalization:RMSNorm "
        "hidden_dropout_rate:0 attention_dropout_rate:0"}) {
    Built b(words);
    std::set<std::string> names;
    for (const auto* parameter : b.model->parameters()) names.insert(parameter->name);
    EXPECT_TRUE(names.count("score.weight") == 1 && names.count("output_layer.weight") == 0);
    const Tokens tokens;
    const auto objective = make_preference_objective(PairStage::rm, {});
    ForwardMode mode;
    mode.objective = objective.get();
    const auto value = [&] {
      autograd::Tape tape(b.arena, b.threads, false);
      return b.model->loss(tape, tokens.batch(), mode).total.sum;
    };
    std::fill(b.grads.begin(), b.grads.end(), 0.0F);
    {
      autograd::Tape tape(b.arena, b.threads, true);
      EXPECT_EQ(b.model->loss(tape, tokens.batch(), mode).total.sum, value());
      tape.backward();
      tape.clear();
    }
    double square = 0;
    for (const double g : b.grads) square += g * g;
    ASSERT_GT(square, 1e-6);
    const auto before = b.values;
    const double step = 2e-3 / std::sqrt(square);
    const auto moved = [&](double by) {
      for (std::size_t i = 0; i < b.values.size(); ++i) b.values[i] += static_cast<float>(by * b.grads[i]);
      const auto sum = value();
      b.values = before;
      return sum;
    };
    EXPECT_NEAR((moved(step) - moved(-step)) / (2 * step * square), 1, 2e-2) << words;
    mode.objective = &mean_cross_entropy();
    EXPECT_THROW(value(), ConfigError);
    EXPECT_THROW(b.model->make_cache(1, 4), ConfigError);
  }
}

TEST(PreferenceObjective, RefusesHalfAPair) {
  Tokens tokens;
  const auto objective = make_preference_objective(PairStage::simpo, {});
  const std::vector<float> each(12);
  EXPECT_THROW(judged(*objective, tokens.part(0, 1, 12), each), BugError);
}

}  // namespace
}  // namespace tessera::model
