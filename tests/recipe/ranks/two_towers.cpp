// An architecture of two towers trains, foresees its memory, saves and resumes on every layout of four ranks as on one.
#include <gtest/gtest.h>

#include "framework/recipe/memory.h"
#include "framework/training/step.h"
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
  Lines stages(int count, const std::string& layers) const {
    return {text(p, "pipeline_model_parallel_size=", count), p + "num_layer_list=" + layers};
  }
  /// The losses of a run of all ranks in the run folder `run`.
  std::vector<double> train(const std::string& run, const Lines& sets) {
    const auto recipe = recipe_of(run, sets);
    const auto processes = arrange(recipe, world());
    training::train(build(recipe, processes, open_data(recipe, processes)), training::StopSignal{});
    std::vector<double> losses;
    for (const auto& step : written(run)) losses.push_back(step.at("loss"));
    return losses;
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
                  stages(4, "[1,2,1,1]")},
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
  const auto expected = train("whole", cut);
  ASSERT_EQ(expected.size(), 6U);
  EXPECT_LT(expected.back(), expected.front() - 0.05);
  EXPECT_EQ(train("parts", with(cut, stops)).size(), 3U);
  EXPECT_EQ(train("parts", with(cut, resumes)), expected);
  EXPECT_EQ(train("moved", with(cut, stops)).size(), 3U);
  const auto moved = train("moved", with(tensor, resumes));
  ASSERT_EQ(moved.size(), expected.size());
  for (std::size_t i = 0; i < moved.size(); ++i) EXPECT_NEAR(moved[i], expected[i], 2e-5) << i;
}

TEST_F(TwoTowersOnRanks, TakeTheMemoryThatIsForeseen) {
  for (const auto& sets :
       {stages(2, "[2,3]"), stages(2, "[3,2]"), stages(2, "[[1,2],[1,1]]"), stages(4, "[1,2,1,1]")}) {
    const auto recipe = recipe_of("run", sets);
    const auto processes = arrange(recipe, world());
    const auto need = memory_of_stage(recipe, layout_figures(recipe, world().size()), processes.place.pipeline);
    EXPECT_TRUE(need.complete) << need.not_foreseen;
    auto all = build(recipe, processes, open_data(recipe, processes));
    std::vector<nn::Parameter*> parameters;
    for (const auto& chunk : all.model.chunks)
      for (auto* parameter : chunk->parameters()) parameters.push_back(parameter);
    const auto* optimizer = all.optimization.optimizer.get();
    training::StateLayout layout(parameters, optimizer,
                                 {.rank = processes.data.rank(), .ranks = processes.data.size()});
    training::StateMemory memory(layout.segment(), processes.data);
    training::ModelState state(std::move(layout), std::move(memory), optimizer);
    kernels::Threads threads(1);
    state.initialise(threads, 1);
    training::TrainingStep work(all.model, all.optimization, all.data, state, threads, 1);
    work.backward(0);
    for (const auto& part : need.parts)
      if (part.name == "activations") {
        EXPECT_EQ(part.bytes, static_cast<std::int64_t>(work.arena().high_water())) << sets.back();
      }
  }
}

}  // namespace
}  // namespace tessera::recipe
