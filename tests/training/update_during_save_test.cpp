// Updates of every optimizer while the state before them is being saved.
#include <gtest/gtest.h>

#include <array>
#include <thread>

#include "framework/checkpoint/opened_state.h"
#include "framework/training/state/model_state.h"
#include "tests/optim/made.h"
#include "tests/training/stand_in_model.h"

namespace tessera::training {
namespace {

/// Matrices, which some optimizers want as a whole, vectors, and a bias of experts, in 32 and 16 bits.
class SavedParameters final : public StandInModel {
 public:
  SavedParameters() {
    add("wide", ParameterRole::matrix, {3000, 48}, DType::bfloat16);
    add("embedding", ParameterRole::word_embedding, {2000, 64}, DType::float32);
    add("gain", ParameterRole::norm_gain, {77}, DType::float32);
    add("high", ParameterRole::matrix, {96, 32}, DType::float32);
    add("bias", ParameterRole::expert_bias, {8}, DType::float32);
  }

 private:
  void add(const char* name, ParameterRole role, Shape shape, DType type) {
    declare(name, role, std::move(shape), nn::Init::normal(0.02)).type = type;
  }
};

struct TrainedWhileSaved {
  explicit TrainedWhileSaved(const std::string& type) : optimizer(optim::made(type)), state(model, optimizer.get()) {
    state.initialise(threads, 5);
  }
  void step() {
    const auto gradients = state.gradients();
    for (std::size_t i = 0; i < gradients.size(); ++i)
      gradients[i] = static_cast<float>(static_cast<std::int64_t>(i * 7919 + static_cast<std::size_t>(done)) % 13 - 6);
    std::array<optim::StepScalars, 2> scalars;
    for (auto& one : scalars) one = optim::scalars_of(++done, 0.01, 0.5);
    scalars[1].balances = true;
    state.update(threads, scalars, std::array<std::size_t, 5>{0, 0, 0, 0, 1});
  }
  std::vector<checkpoint::TensorRange> ranges() {
    auto all = state.weight_ranges(StateScope::owned);
    for (auto& range : state.optimizer_ranges(StateScope::owned)) all.push_back(std::move(range));
    return all;
  }

  SavedParameters model;
  std::unique_ptr<optim::Optimizer> optimizer;
  kernels::Threads threads{3};
  ModelState state;
  std::int64_t done = 0;
};

std::vector<std::byte> all_bytes_of(const checkpoint::StateSnapshot& snapshot) {
  std::vector<std::byte> all;
  for (std::size_t i = 0; i < snapshot.ranges().size(); ++i) {
    std::vector<std::byte> buffer(200'000);
    const auto bytes = snapshot.ranges()[i].tensor.bytes();
    for (std::size_t at = 0; at < bytes; at += buffer.size()) {
      const auto piece = snapshot.bytes(i, at, std::span(buffer).first(std::min(buffer.size(), bytes - at)));
      all.insert(all.end(), piece.begin(), piece.end());
    }
  }
  return all;
}

class UpdateDuringSave : public testing::TestWithParam<std::string> {};

TEST_P(UpdateDuringSave, TheStateBeforeItIsReadAndTheResultIsThatOfAnUndisturbedRun) {
  using Reading = checkpoint::OpenedState::Reading;
  TrainedWhileSaved watched(GetParam()), undisturbed(GetParam());
  for (int i = 0; i < 2; ++i) watched.step(), undisturbed.step();
  for (const auto reading : {Reading::once, Reading::any}) {
    const auto expected = all_bytes_of(checkpoint::CopiedState(watched.ranges()));
    const auto opened = std::make_shared<checkpoint::OpenedState>(watched.ranges(), checkpoint::Blobs{}, reading);
    watched.state.watch(opened);
    std::vector<std::byte> found;
    std::thread saving([&] { found = all_bytes_of(*opened); });
    for (int i = 0; i < 3; ++i) watched.step(), undisturbed.step();
    saving.join();
    EXPECT_TRUE(found == expected);
    // Nothing is read before the updates.
    const auto again = all_bytes_of(checkpoint::CopiedState(watched.ranges()));
    const auto late = std::make_shared<checkpoint::OpenedState>(watched.ranges(), checkpoint::Blobs{}, reading);
    watched.state.watch(late);
    watched.step(), undisturbed.step();
    EXPECT_EQ(late->copied_bytes(), again.size());
    EXPECT_TRUE(all_bytes_of(*late) == again);
    watched.state.watch(nullptr);
    watched.step(), undisturbed.step();
    EXPECT_EQ(late->copied_bytes(), again.size());
  }
  EXPECT_TRUE(all_bytes_of(checkpoint::CopiedState(watched.ranges())) ==
              all_bytes_of(checkpoint::CopiedState(undisturbed.ranges())));
}

std::vector<std::string> optimizers_that_save() {
  std::vector<std::string> all;
  for (const auto& [type, doc] : optim::optimizers().types()) all.push_back(type);
  return all;
}
INSTANTIATE_TEST_SUITE_P(All, UpdateDuringSave, testing::ValuesIn(optimizers_that_save()),
                         [](const auto& one) { return one.param; });

}  // namespace
}  // namespace tessera::training
