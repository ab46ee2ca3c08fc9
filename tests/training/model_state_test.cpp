// The state of a model in memory: what the model reads follows the fp32 weights, in memory of whoever owns it.
#include "framework/training/state/model_state.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "framework/kernels/linear.h"
#include "framework/kernels/type_conversion.h"
#include "tests/story.h"
#include "tests/training/parameter_values.h"
#include "tests/training/stand_in_model.h"

namespace tessera::training {
namespace {

/// Subtracts the gradient times the rate and counts in its state how often.
class Descent final : public optim::Optimizer {
 public:
  std::vector<std::string> slots() const override { return {"times", "sum"}; }
  void update(const optim::StepScalars& s, optim::Block b) const override {
    for (std::size_t i = 0; i < b.master.size(); ++i) {
      b.master[i] -= static_cast<float>(s.lr) * b.grad[i];
      b.slots[0][i] += 1;
      b.slots[1][i] += b.grad[i];
    }
  }
};

class TwoTensors final : public StandInModel {
 public:
  TwoTensors()
      : plain(declare("plain", ParameterRole::matrix, {5, 3}, nn::Init::normal(1))),
        narrow(declare("narrow", ParameterRole::norm_gain, {70}, nn::Init::normal(1))) {
    narrow.type = DType::bfloat16;
  }
  nn::Parameter &plain, &narrow;
};

float read(const nn::Parameter& parameter, std::size_t element) { return values_of(parameter)[element]; }

TEST(ModelState, AnUpdateReachesWhatTheModelReadsInEitherPrecision) {
  TwoTensors model;
  const Descent descent;
  kernels::Threads threads(2);
  ModelState state(model, &descent);
  state.initialise(threads, 3);
  const float plain = read(model.plain, 14), narrow = read(model.narrow, 69);
  model.plain.leaf.grad().floats()[14] = 2;
  model.narrow.leaf.grad().floats()[69] = 2;
  optim::StepScalars scalars;
  scalars.lr = 8;
  state.update(threads, scalars);
  EXPECT_EQ(read(model.plain, 14), plain - 16);
  EXPECT_NEAR(read(model.narrow, 69), narrow - 16, 0.0625);  // 8 bits of mantissa below 32
  EXPECT_NE(read(model.narrow, 69), narrow);
}

/// Copies of the values that the model reads in 16 bits would be two bytes an element.
TEST(ModelState, AMatrixIn16BitsIsRoundedWhenItIsReadIfProductsMultiplyFloatsAndElseACopyFollowsIt) {
  class Matrix final : public StandInModel {
   public:
    explicit Matrix(DType type) : matrix(declare("m", ParameterRole::matrix, {40, 24}, nn::Init::normal(1))) {
      matrix.type = type;
    }
    nn::Parameter& matrix;
  };
  const Descent descent;
  kernels::Threads threads(2);
  for (const auto type : {DType::bfloat16, DType::float16}) {
    Matrix model(type);
    ModelState state(model, &descent);
    state.initialise(threads, 7);
    std::fill(state.gradients().begin(), state.gradients().end(), 0.37F);
    state.update(threads, optim::StepScalars{.step = 1, .lr = 1});
    const bool reads = kernels::multiplies_floats(type);
    EXPECT_EQ(model.matrix.leaf.stored != nullptr, reads);
    EXPECT_EQ(state.bytes().weights, 40 * 24 * (reads ? 4 : 6));
    std::vector<float> rounded(40 * 24);
    std::copy_n(state.weights().begin(), rounded.size(), rounded.begin());
    ASSERT_NE(values_of(model.matrix), rounded);  // the fp32 weights are not rounded themselves
    kernels::round_to(threads, type, rounded);
    EXPECT_EQ(values_of(model.matrix), rounded);
    state.parts()[0]->round_main_weights();
    EXPECT_TRUE(std::equal(rounded.begin(), rounded.end(), state.weights().begin()));
    Matrix read_only(type);
    const ModelState without(read_only, nullptr);  // generation reads the weights often: in 16 bits
    EXPECT_EQ(read_only.matrix.leaf.stored, nullptr);
  }
}

TEST(ModelState, TheBiasOfARouterMovesByItsRateAndIsInNoSumOverTheModel) {
  class Routed final : public StandInModel {
   public:
    Routed()
        : plain(declare("plain", ParameterRole::matrix, {2, 2}, nn::Init::constant(1))),
          bias(declare("bias", ParameterRole::expert_bias, {4}, nn::Init::zeros())) {}
    nn::Parameter &plain, &bias;
  };
  Routed model;
  const Descent descent;
  kernels::Threads threads(2);
  ModelState state(model, &descent);
  state.initialise(threads, 3);
  const auto load = model.bias.leaf.grad().floats();  // each expert's tokens, times 4, less those of all
  std::copy_n(std::array{-1.0F, 0.0F, 1000.0F, 3.0F}.begin(), 4, load.begin());
  std::array<optim::StepScalars, 2> scalars;
  scalars[1].lr = 0.25;
  scalars[1].clip = 1e-9;  // of gradients, which this is none of
  scalars[1].balances = true;
  state.update(threads, scalars, std::array<std::size_t, 2>{0, 1});
  const std::vector<float> moved = {0.25F, 0, -0.25F, -0.25F};
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(read(model.bias, i), moved[i]) << i;
  double gradients = 0, weights = 0;
  for (const auto& part : state.owned_gradients())
    for (const auto value : part) gradients += std::abs(static_cast<double>(value));
  for (const auto& part : state.owned_weights())
    for (const auto value : part) weights += static_cast<double>(value);
  EXPECT_EQ(gradients, 0);
  EXPECT_EQ(weights, 4);
}

TEST(ModelState, AParameterOfSeveralPiecesIsUpdatedAndRoundedWhole) {
  class Long final : public StandInModel {
   public:
    Long() : values(declare("values", ParameterRole::bias, {100'003}, nn::Init::zeros())) {
      values.type = DType::bfloat16;
    }
    nn::Parameter& values;
  };
  Long model;
  const Descent descent;
  kernels::Threads threads(2);
  ModelState state(model, &descent);
  for (std::size_t i = 0; i < 100'003; ++i) model.values.leaf.grad().floats()[i] = static_cast<float>(i % 251);
  state.update(threads, optim::StepScalars{.step = 1, .lr = -1});
  const auto read = values_of(model.values);  // whole numbers up to 256 have a bfloat16
  for (std::size_t i = 0; i < read.size(); ++i) ASSERT_EQ(read[i], static_cast<float>(i % 251)) << i;
}

TEST(ModelState, ClearedGradientsAreStaleAndTheirPaddingIsZero) {
  TwoTensors model;
  const Descent descent;
  kernels::Threads threads(1);
  ModelState state(model, &descent);
  std::fill(state.gradients().begin(), state.gradients().end(), 3.F);
  state.clear_gradients();
  for (auto* parameter : {&model.plain, &model.narrow}) {
    EXPECT_TRUE(parameter->leaf.grad_is_stale()) << parameter->name;
    parameter->leaf.grad_to_add_to(threads);
    EXPECT_FALSE(parameter->leaf.grad_is_stale()) << parameter->name;
  }
  for (const auto gradient : state.gradients()) EXPECT_EQ(gradient, 0);  // between the parameters too
}

TEST(ModelState, WhatIsWrittenIntoRangesReachesTheModelWhenItIsTold) {
  TwoTensors model;
  ModelState state(model, nullptr);
  for (const auto& range : state.weight_ranges())
    for (auto& x : range.tensor.floats()) x = 1.5F;
  EXPECT_EQ(read(model.narrow, 0), 0);
  state.weights_changed();
  EXPECT_EQ(read(model.narrow, 69), 1.5F);
  EXPECT_EQ(read(model.plain, 0), 1.5F);
}

TEST(ModelState, ASegmentOfTheCallerOutlivesTheStateWithAllItsNumbers) {
  const Descent descent;
  kernels::Threads threads(1);
  TwoTensors first, second;
  const StateLayout sizes(first.parameters(), &descent);
  alignas(64) std::array<std::byte, 5 * StateSegment::alignment> segment = {};
  ASSERT_EQ(sizes.segment().bytes, 4 * StateSegment::alignment);  // no masters
  const auto in_segment = [&](model::Model& model) {
    StateLayout layout(model.parameters(), &descent);
    StateMemory memory(layout.segment(), segment);
    return ModelState(std::move(layout), std::move(memory), &descent);
  };
  {
    auto state = in_segment(first);
    state.initialise(threads, 5);
    std::fill(state.gradients().begin(), state.gradients().end(), 1.F);
    state.update(threads, optim::StepScalars{.step = 1, .lr = 0.5});
  }
  auto again = in_segment(second);
  for (std::size_t i = 0; i < 70; ++i) EXPECT_EQ(read(second.narrow, i), read(first.narrow, i));
  for (std::size_t i = 0; i < 15; ++i) EXPECT_EQ(read(second.plain, i), read(first.plain, i));
  int times = 0;
  for (const auto& range : again.optimizer_ranges())
    for (const auto x : range.tensor.floats()) times += x == 1 ? 1 : 0;
  EXPECT_EQ(times, 2 * (15 + 70));
}

TEST(ModelState, ASegmentThatDoesNotFitIsRefused) {
  TwoTensors model;
  const StateLayout layout(model.parameters(), nullptr);
  alignas(64) std::array<std::byte, 3 * StateSegment::alignment> segment = {};
  const auto story = story_of([&] { StateMemory(layout.segment(), std::span(segment).first(100)); });
  EXPECT_TRUE(says(story, "a segment of 100 bytes") && says(story, text("expected ", layout.segment().bytes))) << story;
  EXPECT_THROW(StateMemory(layout.segment(), std::span(segment).subspan(4)), ShapeError);
}

TEST(ModelState, OwnedRangesAreViewsOfItsGradientsAndWeights) {
  TwoTensors model;
  const Descent descent;
  ModelState state(model, &descent);
  std::fill(state.gradients().begin(), state.gradients().end(), 1.F);
  std::fill(state.weights().begin(), state.weights().end(), 2.F);
  double gradients = 0, weights = 0;
  for (const auto& part : state.owned_gradients())
    for (const auto x : part) gradients += x;
  for (const auto& part : state.owned_weights())
    for (const auto x : part) weights += x;
  EXPECT_EQ(gradients - static_cast<double>(state.layout().owned_padding()), 85);
  EXPECT_EQ(weights, 2 * gradients);
}

TEST(ModelState, WithoutAnOptimizerNothingIsUpdated) {
  TwoTensors model;
  ModelState state(model, nullptr);
  kernels::Threads threads(1);
  EXPECT_TRUE(state.gradients().empty());
  EXPECT_THROW(state.update(threads, optim::StepScalars{}), BugError);
}

}  // namespace
}  // namespace tessera::training
