// A training step by itself, with a model whose losses and gradients are known.
#include "framework/training/step/step.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "framework/optim/clipping.h"
#include "framework/options/choose.h"
#include "tests/story.h"
#include "tests/training/stand_in_model.h"

namespace tessera::training {
namespace {

constexpr std::int64_t sample_length = 2;

/// The loss of a token is the token times the sum of the weights, so each weight has the same gradient.
class SumModel final : public StandInModel {
 public:
  SumModel() {
    add("plain", ParameterRole::matrix);
    add("fast", ParameterRole::matrix);
    add("light", ParameterRole::matrix);
    add("words", ParameterRole::word_embedding);
  }
  model::ChunkResult forward(autograd::Tape& tape, const autograd::Var&, const TokenBatch& batch,
                             const model::ForwardMode& mode) const override {
    double weights = 0, tokens = 0, count = 0;
    for (const auto* p : all) weights += static_cast<double>(p->leaf.value.floats()[0]);
    for (std::size_t i = 0; i < batch.tokens.size(); ++i) {
      tokens += batch.loss_mask[i] * static_cast<double>(batch.tokens[i]);
      count += batch.loss_mask[i];
    }
    if (tape.records()) tape.record<Backward>(all, mode.objective->weigh(tape, batch, mode.share).seed * tokens);
    return {{}, {{tokens * weights, count}, {}}};
  }
  std::vector<nn::Parameter*> all;

 private:
  class Backward final : public autograd::Node {
   public:
    Backward(std::vector<nn::Parameter*> all, double gradient) : all_(std::move(all)), gradient_(gradient) {}
    void backward(autograd::Tape& tape) override {
      for (auto* p : all_) p->leaf.grad_to_add_to(tape.threads())[0] += static_cast<float>(gradient_);
    }

   private:
    std::vector<nn::Parameter*> all_;
    double gradient_;
  };
  void add(const char* name, ParameterRole role) {
    all.push_back(&declare(name, role, {1, 1}, nn::Init::constant(0.25)));
  }
};

/// Keeps as its state what it is called with.
class RecordingOptimizer final : public optim::Optimizer {
 public:
  std::vector<std::string> slots() const override { return {"lr", "decay", "clip", "step"}; }
  void update(const optim::StepScalars& s, optim::Block b) const override {
    b.slots[0][0] = static_cast<float>(s.lr);
    b.slots[1][0] = static_cast<float>(s.weight_decay);
    b.slots[2][0] = static_cast<float>(s.clip);
    b.slots[3][0] = static_cast<float>(s.step);
  }
};

/// Sample i has the tokens i and 10 i, and every third sample counts its first token only.
class Counting final : public data::Dataset {
 public:
  std::int64_t samples() const override { return 100; }
  std::int64_t seq_length() const override { return sample_length; }
  void read(std::int64_t index, const SampleView& out) const override {
    out.tokens[0] = static_cast<std::int32_t>(index);
    out.tokens[1] = static_cast<std::int32_t>(10 * index);
    out.loss_mask[0] = 1;
    out.loss_mask[1] = index % 3 == 0 ? 0.F : 1.F;
  }
};

class InOrder final : public data::Sampler {
 public:
  std::int64_t index(std::int64_t consumed) const override { return consumed; }
};

/// Steps of three micro-batches of two samples.
class StepTest : public testing::Test {
 protected:
  StepTest() {
    auto model = std::make_unique<SumModel>();
    model_ = model.get();
    setup_.chunks.push_back(std::move(model));
    setup_.plan = parallel::LayerPlan(1);
    data_.batch.batch_size = 2;
    data_.batch.num_workers = 0;
    data_.batch_plan = schedule::BatchPlan({}, {.micro = 2, .global = 6, .ranks = 1});
    data_.splits = std::make_unique<data::DataSplits>();
    data_.splits->train = std::make_unique<Counting>();
    data_.train_order = std::make_unique<InOrder>();
    schedule::LearningRateOptions rate;
    rate.learning_rate = 0.5;
    schedule::WeightDecayOptions decay;
    decay.weight_decay = 0.125;
    const schedule::RunLength length{100, 6};
    const auto maker = schedule::decay_maker(schedule::decays(), length);
    optimization_.schedule =
        std::make_unique<schedule::OptimizerSchedule>(schedule::LearningRate(rate, maker("constant"), length),
                                                      schedule::WeightDecay(decay, length), "constant", maker);
    optimization_.clipping.clip_grad = 0;
    optimization_.objective = objective("{}");
    state_.emplace(*model_, &optimizer_);
    state_->initialise(threads_, 1);
  }
  static std::unique_ptr<model::Objective> objective(const std::string& words) {
    return options::choose(model::objectives(), words).make();
  }
  TrainingStep& step() {
    if (!step_) step_.emplace(setup_, optimization_, data_, *state_, threads_, 1);
    return *step_;
  }
  /// The sum of the counted tokens of a micro-batch that begins at sample `first`, and how many they are.
  static std::pair<double, double> micro_batch(std::int64_t first) {
    double sum = 0, count = 0;
    for (auto i = first; i < first + 2; ++i) {
      sum += static_cast<double>(i) * (i % 3 == 0 ? 1 : 11);
      count += i % 3 == 0 ? 1 : 2;
    }
    return {sum, count};
  }
  float recorded(const std::string& what, const std::string& parameter) {
    for (const auto& range : state_->optimizer_ranges())
      if (range.name == "optimizer." + what + "." + parameter) return range.tensor.floats()[0];
    throw BugError("no such state");
  }

  kernels::Threads threads_{1};
  RecordingOptimizer optimizer_;
  ModelSetup setup_;
  OptimizationSetup optimization_;
  RunData data_;
  SumModel* model_ = nullptr;
  std::optional<ModelState> state_;
  std::optional<TrainingStep> step_;
};

TEST_F(StepTest, LossIsTheMeanOverTokensAndTheGradientThatOverMicroBatches) {
  double sum = 0, count = 0, gradient = 0;
  for (const std::int64_t first : {6, 8, 10}) {
    const auto [tokens, counted] = micro_batch(first);
    sum += tokens;
    count += counted;
    gradient += tokens / counted / 3;
  }
  const auto outcome = step().backward(6);
  EXPECT_DOUBLE_EQ(outcome.loss, sum / count);
  EXPECT_NEAR(outcome.grad_norm, 2 * gradient, 1e-4);  // of four equal weights
  EXPECT_EQ(outcome.gradient_factor, 1);
  EXPECT_EQ(model_->all[0]->leaf.value.floats()[0], 0.25F);  // no weight changed
}

TEST_F(StepTest, ComputedAgainAStepHasTheSameBits) {
  const auto first = step().backward(6);
  const auto print = step().print();
  step().backward(12);
  EXPECT_NE(step().print().loss, print.loss);
  EXPECT_NE(step().print().gradients, print.gradients);
  const auto again = step().backward(6);
  EXPECT_EQ(again.loss, first.loss);
  EXPECT_EQ(again.grad_norm, first.grad_norm);
  EXPECT_EQ(step().print().loss, print.loss);
  EXPECT_EQ(step().print().gradients, print.gradients);
}

TEST_F(StepTest, WithPerTokenLossTheGradientIsTheMeanOverTokensToo) {
  optimization_.objective = objective("{calculate_per_token_loss: true}");
  double sum = 0, count = 0;
  for (const std::int64_t first : {6, 8, 10}) {
    sum += micro_batch(first).first;
    count += micro_batch(first).second;
  }
  const auto outcome = step().backward(6);
  EXPECT_NEAR(outcome.grad_norm, 2 * sum / count, 1e-4);
  EXPECT_DOUBLE_EQ(outcome.gradient_factor, 1 / count);
}

TEST_F(StepTest, TheLossScaleIsInTheMainGradientsButNotInTheNorm) {
  const auto plain = step().backward(0);
  const float before = state_->gradients()[0];
  LossScaleOptions options;
  options.loss_scale = 8;
  optimization_.loss_scaler = LossScaler(options, true);
  const auto scaled = step().backward(0);
  EXPECT_EQ(state_->gradients()[0], 8 * before);
  EXPECT_NEAR(scaled.grad_norm, plain.grad_norm, 1e-9);
  EXPECT_EQ(scaled.gradient_factor, 0.125);
  EXPECT_EQ(scaled.loss, plain.loss);
}

TEST_F(StepTest, EachParameterIsUpdatedAtItsOwnRateAndDecay) {
  optimization_.groups.param_rules = {{"fast", 3, 1}, {"light", 1, 0.5}};
  optimization_.groups.decoupled_lr = 0.25;
  optimization_.groups.decoupled_min_lr = 0;
  {
    const auto outcome = step().backward(0);
    step().update(step().rates(7), outcome);
  }
  const std::map<std::string, std::pair<float, float>> expected = {
      {"plain", {0.5F, 0.125F}}, {"fast", {1.5F, 0.125F}}, {"light", {0.5F, 0.0625F}}, {"words", {0.25F, 0.125F}}};
  for (const auto& [name, wanted] : expected) {
    EXPECT_EQ(recorded("lr", name), wanted.first) << name;
    EXPECT_EQ(recorded("decay", name), wanted.second) << name;
    EXPECT_EQ(recorded("step", name), 7.F) << name;
    EXPECT_EQ(recorded("clip", name), 1.F) << name;
  }
}

TEST_F(StepTest, ClippingAndTheLossScaleAreAppliedTogether) {
  LossScaleOptions options;
  options.loss_scale = 8;
  optimization_.loss_scaler = LossScaler(options, true);
  optimization_.clipping.clip_grad = 2;
  const auto outcome = step().backward(6);
  step().update(step().rates(1), outcome);
  EXPECT_NEAR(recorded("clip", "plain"), 2 / outcome.grad_norm / 8, 1e-6);
}

TEST_F(StepTest, AnEvaluationContinuesAtItsSamplesAndRecordsNothing) {
  std::fill(state_->gradients().begin(), state_->gradients().end(), 0.F);
  double sum = 0, count = 0;
  for (std::int64_t first = 12; first < 24; first += 2) {
    sum += micro_batch(first).first;
    count += micro_batch(first).second;
  }
  std::vector<std::int64_t> progress;
  EXPECT_DOUBLE_EQ(step().evaluate(*data_.splits->train, *data_.train_order, 12, 2,
                                   [&](std::int64_t steps) { progress.push_back(steps); }),
                   sum / count);
  EXPECT_EQ(progress, (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(state_->gradients()[0], 0);
}

TEST_F(StepTest, PaddingIsNeitherCountedAsZeroNorInTheNormOfTheWeights) {
  step().backward(6);
  EXPECT_EQ(step().zeros_in_gradients(), 0);
  model_->all[2]->leaf.grad().floats()[0] = 0;
  EXPECT_EQ(step().zeros_in_gradients(), 1);
  EXPECT_DOUBLE_EQ(step().weight_norm(), 0.5);
}

TEST_F(StepTest, LossAndNormMustBothBeFinite) {
  const double infinite = std::numeric_limits<double>::infinity(), nan = std::nan("");
  const auto is_finite = [](double loss, double grad_norm) {
    StepOutcome outcome;
    outcome.loss = loss;
    outcome.grad_norm = grad_norm;
    return outcome.finite();
  };
  EXPECT_TRUE(is_finite(1, 2));
  for (const double bad : {infinite, -infinite, nan}) {
    EXPECT_FALSE(is_finite(bad, 2));
    EXPECT_FALSE(is_finite(1, bad));
  }
}

TEST_F(StepTest, AWeightThatIsNotFiniteIsNamed) {
  model_->all[1]->leaf.value.floats()[0] = std::numeric_limits<float>::infinity();
  const auto found = step().first_not_finite(0);
  EXPECT_TRUE(says(found, "weight fast ") && says(found, "is not finite at element 0")) << found;
}

}  // namespace
}  // namespace tessera::training
