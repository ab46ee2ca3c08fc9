// The state of a model that data-parallel ranks share: buckets reduced, shards updated, weights gathered; and messages
// between stages.
#include <gtest/gtest.h>

#include "framework/training/state/model_state.h"
#include "framework/training/step/stage_channel.h"
#include "tests/ranks/ranks.h"
#include "tests/training/parameter_values.h"
#include "tests/training/stand_in_model.h"

namespace tessera::training {
namespace {

/// Exact in fp32 for the whole numbers used here, so every layout must give the same bits.
class Descent final : public optim::Optimizer {
 public:
  std::vector<std::string> slots() const override { return {"sum"}; }
  void update(const optim::StepScalars& s, optim::Block b) const override {
    for (std::size_t i = 0; i < b.master.size(); ++i) {
      b.slots[0][i] += b.grad[i];
      b.master[i] -= static_cast<float>(s.lr) * b.slots[0][i];
    }
  }
};

class SomeTensors final : public StandInModel {
 public:
  SomeTensors() {
    for (const std::int64_t rows : {3, 40, 1, 200, 7}) {
      auto& p = declare(text("p", all.size()), ParameterRole::matrix, {rows, 5}, nn::Init::zeros());
      if (all.size() % 2 == 1) p.type = DType::bfloat16;
      all.push_back(&p);
    }
  }
  std::vector<float> read() const {
    std::vector<float> out;
    for (const auto* p : all) {
      const auto own = values_of(*p);
      out.insert(out.end(), own.begin(), own.end());
    }
    return out;
  }
  /// The gradient of rank `rank` in step `step`.
  void add_gradients(int rank, int step) const {
    for (const auto* p : all) {
      auto gradient = p->leaf.grad().floats();
      for (std::size_t i = 0; i < gradient.size(); ++i)
        gradient[i] += static_cast<float>(static_cast<int>(i % 5) - 2 + rank * step);
    }
  }
  std::vector<nn::Parameter*> all;
};

TEST(SharedState, EveryDivisionOfTheWorkGivesTheWeightsOfOneRankToTheBit) {
  const auto group = world().all();
  const Descent descent;
  kernels::Threads threads(1);
  const auto step = [&](ModelState& state) { state.update(threads, optim::StepScalars{.step = 1, .lr = 1}); };
  SomeTensors alone;
  ModelState reference(alone, &descent);
  for (int k = 1; k <= 3; ++k) {
    std::fill(reference.gradients().begin(), reference.gradients().end(), 0.F);
    for (int rank = 0; rank < group.size(); ++rank) alone.add_gradients(rank, k);
    step(reference);
  }
  ASSERT_NE(alone.read(), std::vector<float>(alone.read().size()));
  for (const bool distributed : {false, true})
    for (const std::int64_t elements : {0, 1, 300})
      for (const bool overlaps : {false, true}) {
        SomeTensors model;
        StateLayout layout(model.parameters(), &descent,
                           {.rank = group.rank(),
                            .ranks = group.size(),
                            .distributed_optimizer = distributed,
                            .bucket_elements = elements});
        StateMemory memory(layout.segment(), group);
        ModelState state(std::move(layout), std::move(memory), &descent, overlaps);
        for (int k = 1; k <= 3; ++k) {
          std::fill(state.gradients().begin(), state.gradients().end(), 0.F);
          state.weights_needed();
          model.add_gradients(group.rank(), k);
          for (std::size_t b = 0; b < state.layout().buckets().size(); ++b) {
            state.reducer().begin(b);
            state.reducer().progress();
          }
          state.reducer().finish();
          step(state);
        }
        state.weights_needed();
        EXPECT_EQ(model.read(), alone.read())
            << (distributed ? "distributed" : "replicated") << ", buckets of " << elements << ", overlap " << overlaps;
      }
}

TEST(SharedState, InitialWeightsAndLoadedOnesReachEveryRank) {
  const auto group = world().all();
  const Descent descent;
  kernels::Threads threads(1);
  SomeTensors model;
  for (auto* p : model.all) p->init = nn::Init::normal(1);
  StateLayout layout(model.parameters(), &descent,
                     {.rank = group.rank(), .ranks = group.size(), .distributed_optimizer = true});
  StateMemory memory(layout.segment(), group);
  ModelState state(std::move(layout), std::move(memory), &descent);
  state.initialise(threads, 5);
  SomeTensors alone;
  for (auto* p : alone.all) p->init = nn::Init::normal(1);
  ModelState reference(alone, nullptr);
  reference.initialise(threads, 5);
  EXPECT_EQ(model.read(), alone.read());
  for (const auto& range : state.weight_ranges())  // each rank fills its own shards only
    for (auto& x : range.tensor.floats()) x = 3;
  state.weights_changed();
  EXPECT_EQ(model.read(), std::vector<float>(alone.read().size(), 3.F));
  EXPECT_THROW(state.weights(), BugError);
}

TEST(StageChannel, SendsToTheNextStageAndReceivesFromTheOneBefore) {
  const auto group = world().all();
  CommunicatorChannel channel(group);
  const int here = group.rank(), all = group.size();
  std::vector<float> mine(1000, static_cast<float>(here)), came(1000);
  const auto received = channel.receive(std::as_writable_bytes(std::span(came)), (here + all - 1) % all, 7, "values");
  const auto sent = channel.send(std::as_bytes(std::span(mine)), (here + 1) % all, 7, "values");
  received->wait();
  sent->wait();
  EXPECT_TRUE(received->done() && sent->done());
  EXPECT_EQ(came, std::vector<float>(1000, static_cast<float>((here + all - 1) % all)));
}

}  // namespace
}  // namespace tessera::training
