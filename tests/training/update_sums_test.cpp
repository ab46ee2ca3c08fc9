// Bits that change in memory between two updates, and the checksums that find them.
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <random>

#include "framework/training/state/shared_state.h"
#include "tests/optim/made.h"
#include "tests/training/stand_in_model.h"

namespace tessera::training {
namespace {

using resilience::Damage;

/// Several pieces, whole matrices for optimizers that want them, and weights in 32 and 16 bits.
class TwoTypes final : public StandInModel {
 public:
  TwoTypes() {
    declare("rounded", ParameterRole::matrix, {48, 40}, nn::Init::normal(0.02)).type = DType::bfloat16;
    declare("embedding", ParameterRole::word_embedding, {1100, 64}, nn::Init::normal(0.02)).type = DType::float32;
    declare("gain", ParameterRole::norm_gain, {77}, nn::Init::ones()).type = DType::float32;
    declare("rounded_gain", ParameterRole::norm_gain, {90}, nn::Init::ones()).type = DType::bfloat16;
  }
};

struct CheckedUpdate {
  explicit CheckedUpdate(const std::string& name, bool checks = true) : optimizer(optim::made(name)) {
    StateLayout layout(model.parameters(), optimizer.get());
    StateMemory memory(layout.segment());
    const auto pieces = undo_extents(layout, *optimizer).pieces;
    state = std::make_unique<SharedState>(std::move(layout), std::move(memory), optimizer.get(), false, nullptr,
                                          checks ? std::make_unique<resilience::StateSums>(pieces) : nullptr);
    state->initialise(threads, 5);
    state->updates().seal(threads);
  }
  void step() {
    const auto gradients = state->gradients();
    for (std::size_t i = 0; i < gradients.size(); ++i) gradients[i] = static_cast<float>(i * 7919 % 13) - 6;
    optim::StepScalars scalars{.step = ++steps, .lr = 0.01, .clip = 0.5, .weight_decay = 0.1};
    state->update(threads, {&scalars, 1}, {});
  }
  TwoTypes model;
  std::unique_ptr<optim::Optimizer> optimizer;
  std::unique_ptr<SharedState> state;
  kernels::Threads threads{2};
  std::int64_t steps = 0;
};

class UpdateSums : public testing::TestWithParam<std::string> {};

TEST_P(UpdateSums, AnyBitThatChangesIsFoundNowAndByTheNextUpdate) {
  const auto seed = std::random_device{}();
  std::mt19937 random(seed);
  for (int i = 0; i < 60; ++i) {
    CheckedUpdate run(GetParam());
    run.step();
    run.step();
    ASSERT_EQ(run.state->updates().damage(run.threads), Damage::none);
    auto ranges = run.state->shard_elements();
    const auto tensors = run.state->layout().state_tensors().size() + 1;
    const auto which = std::uniform_int_distribution<std::size_t>(0, ranges.size() - 1)(random);
    auto& value = ranges[which][std::uniform_int_distribution<std::size_t>(0, ranges[which].size() - 1)(random)];
    value = std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) ^ (1U << (random() % 32)));
    const auto& shard = run.state->layout().shards()[which / tensors];
    // The fp32 weights, except where the model reads a rounded copy of them.
    const auto& parameter = *run.state->layout().parameters().ranges()[shard.parameter].parameter;
    const bool read = parameter.leaf.stored || parameter.type == DType::float32;
    const auto expected = which % tensors == 0 && read ? Damage::weights : Damage::state;
    EXPECT_EQ(run.state->updates().damage(run.threads), expected) << "seed " << seed;
    EXPECT_EQ(run.state->updates().noted_damage(), Damage::none);
    run.step();
    EXPECT_EQ(run.state->updates().noted_damage(), expected) << "seed " << seed;
    EXPECT_EQ(run.state->updates().damage(run.threads), Damage::none) << "the update makes new sums";
    run.state->updates().seal(run.threads);
    EXPECT_EQ(run.state->updates().noted_damage(), Damage::none);
  }
}

TEST_P(UpdateSums, ChangeNoBitOfAnUpdate) {
  CheckedUpdate with(GetParam()), without(GetParam(), false);
  for (int i = 0; i < 4; ++i) with.step(), without.step();
  const auto ours = with.state->shard_elements(), theirs = without.state->shard_elements();
  ASSERT_EQ(ours.size(), theirs.size());
  for (std::size_t i = 0; i < ours.size(); ++i)
    EXPECT_EQ(std::memcmp(ours[i].data(), theirs[i].data(), ours[i].size_bytes()), 0) << i;
  EXPECT_EQ(with.state->updates().noted_damage(), Damage::none);
}

std::vector<std::string> every_optimizer() {
  std::vector<std::string> all;
  for (const auto& [type, doc] : optim::optimizers().types()) all.push_back(type);
  return all;
}
INSTANTIATE_TEST_SUITE_P(All, UpdateSums, testing::ValuesIn(every_optimizer()),
                         [](const auto& one) { return one.param; });

}  // namespace
}  // namespace tessera::training
