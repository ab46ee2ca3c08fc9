// An architecture of two towers trains, foresees its memory, saves and resumes on every layout of four ranks as on one.
#include <gtest/gtest.h>

#include "tests/recipe/ranks/runs.h"
#include "tests/recipe/two_towers_recipe.h"

namespace tessera::recipe {
namespace {

class TwoTowersOnRanks : public RunsOfRanks {
 protected:
  TwoTowersOnRanks() {
    registries = with_two_towers();
    if (world().rank() == 0) std::ofstream(folder_ / "run.yaml") << two_towers_recipe((folder_ / "data").string());
    world().all().all_gather("", "the recipe of the test");
  }
  const Lines tensor = {p + "tensor_model_parallel_size=2"};
};

/// Cuts in the encoder, between the towers and in the decoder; of the encoder's three layers and the decoder's two.
TEST_F(TwoTowersOnRanks, LearnOnEveryLayoutAsOnOneRank) {
  const auto with_tensor = [&](Lines sets) {
    sets.push_back(tensor.front());
    return sets;
  };
  expect_same_on({{},
                  {"training_config.use_distributed_optimizer=true"},
                  tensor,
                  stages(2, "[2,3]"),
                  stages(2, "[3,2]"),
                  with_tensor(stages(2, "[2,3]")),
                  with_tensor(stages(2, "[4,1]")),
                  stages(2, "[[1,2],[1,1]]"),
                  stages(4, "[1,2,1,1]"),
                  stages(4, "[0,3,2,0]"),
                  stages(2, "[[0,3],[2,0]]")},
                 {});
}

TEST_F(TwoTowersOnRanks, ResumeToTheBitAndOnAnotherLayout) {
  const auto cut = stages(4, "[1,2,1,1]");
  const Lines resumes = {"training_config.resume_training=auto"},
              stops = {"training_config.resume_training=auto", "training_config.exit_interval=3"};
  const auto with = [&](Lines sets, const Lines& more) {
    sets.insert(sets.end(), more.begin(), more.end());
    return sets;
  };
  const auto expected = losses_of("whole", cut);
  ASSERT_EQ(expected.size(), 6U);
  EXPECT_LT(expected.back(), expected.front() - 0.05);
  EXPECT_EQ(losses_of("parts", with(cut, stops)).size(), 3U);
  EXPECT_EQ(losses_of("parts", with(cut, resumes)), expected);
  EXPECT_EQ(losses_of("moved", with(cut, stops)).size(), 3U);
  const auto moved = losses_of("moved", with(tensor, resumes));
  ASSERT_EQ(moved.size(), expected.size());
  for (std::size_t i = 0; i < moved.size(); ++i) EXPECT_NEAR(moved[i], expected[i], 2e-5) << i;
}

TEST_F(TwoTowersOnRanks, TakeTheMemoryThatIsForeseen) {
  for (const auto& sets :
       {stages(2, "[2,3]"), stages(2, "[3,2]"), stages(2, "[[1,2],[1,1]]"), stages(4, "[1,2,1,1]")}) {
    const auto bytes = activations_of(sets);
    EXPECT_EQ(bytes.foreseen, bytes.taken) << sets.back();
  }
}

}  // namespace
}  // namespace tessera::recipe
