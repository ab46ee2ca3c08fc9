// An architecture of two towers trains, foresees its memory, saves and resumes on every layout of two ranks as on one.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "framework/recipe/build.h"
#include "framework/recipe/memory.h"
#include "framework/training/step.h"
#include "framework/training/trainer.h"
#include "tests/ranks/ranks.h"
#include "tests/recipe/groups.h"
#include "tests/recipe/two_towers_recipe.h"

namespace tessera::recipe {
namespace {

namespace fs = std::filesystem;

class TwoTowersOnRanks : public testing::Test {
 protected:
  TwoTowersOnRanks() {
    if (world().rank() == 0) {
      std::string name = testing::TempDir() + "tessera.XXXXXX";
      if (::mkdtemp(name.data()) != nullptr) folder_ = name;
      write_token_file((folder_ / "data").string(), 7);
      std::ofstream(folder_ / "run.yaml") << two_towers_recipe((folder_ / "data").string());
    }
    folder_ = world().all().all_gather(folder_.string(), "the folder of the test").front();
  }
  ~TwoTowersOnRanks() override {
    world().all().all_gather("", "the end of the test");
    if (world().rank() == 0) fs::remove_all(folder_);
  }

  Recipe read(const Lines& sets) const { return read_recipe((folder_ / "run.yaml").string(), sets, with_two_towers()); }
  /// The losses of all steps in the run folder `run`.
  std::vector<double> losses(const std::string& run) const {
    std::ifstream file(folder_ / run / "metrics.jsonl");
    std::vector<double> all;
    for (std::string line; std::getline(file, line);) all.push_back(nlohmann::json::parse(line).at("loss"));
    return all;
  }
  std::vector<double> train(const std::string& run, Lines sets) const {
    const auto recipe = read(std::move(sets) + Lines{t + "output_dir=" + (folder_ / run).string()});
    const auto processes = arrange(recipe, world());
    training::train(build(recipe, processes, open_data(recipe, processes)), training::StopSignal{});
    return losses(run);
  }
  std::vector<double> train_alone() const {
    const auto run = text("alone", world().rank());
    training::train(build(read({t + "output_dir=" + (folder_ / run).string()})), training::StopSignal{});
    return losses(run);
  }

 private:
  fs::path folder_;
};

const Lines stages = {p + "pipeline_model_parallel_size=2"};
/// Layouts of one replica on two ranks, with the layers of each chunk.
const std::vector<std::pair<std::string, Lines>> pipelines = {
    {"cut in the encoder", stages + Lines{p + "num_layer_list=[2,3]"}},
    {"cut between the towers", stages + Lines{p + "num_layer_list=[3,2]"}},
    {"cut in the decoder", stages + Lines{p + "num_layer_list=[4,1]"}},
    {"four chunks", stages + Lines{p + "num_layer_list=[[1,2],[1,1]]"}}};
const Lines tensor = {p + "tensor_model_parallel_size=2"};

TEST_F(TwoTowersOnRanks, LearnOnEveryLayoutAsOnOneRank) {
  const auto expected = train_alone();
  ASSERT_EQ(expected.size(), 6U);
  EXPECT_LT(expected.back(), expected.front() - 0.2);
  for (const auto& [name, sets] : pipelines) EXPECT_EQ(train(name, sets), expected) << name;
  for (const auto& [name, sets] :
       {std::pair("data", Lines{}), {"shards", Lines{t + "use_distributed_optimizer=true"}}, {"tensor", tensor}}) {
    const auto own = train(name, sets);
    ASSERT_EQ(own.size(), expected.size()) << name;
    for (std::size_t i = 0; i < own.size(); ++i) EXPECT_NEAR(own[i], expected[i], 2e-5) << name << " step " << i + 1;
  }
}

TEST_F(TwoTowersOnRanks, ResumeToTheBitAndOnAnotherLayout) {
  const auto& cut = pipelines.front().second;
  const auto expected = train("whole", cut);
  EXPECT_EQ(train("parts", cut + Lines{t + "exit_interval=3"}).size(), 3U);
  EXPECT_EQ(train("parts", cut), expected);
  train("moved", cut + Lines{t + "exit_interval=3"});
  const auto moved = train("moved", tensor);
  ASSERT_EQ(moved.size(), expected.size());
  for (std::size_t i = 0; i < moved.size(); ++i) EXPECT_NEAR(moved[i], expected[i], 2e-5) << i;
}

TEST_F(TwoTowersOnRanks, TakeTheMemoryThatIsForeseen) {
  for (const auto& [name, sets] : pipelines) {
    const auto recipe = read(sets);
    const auto processes = arrange(recipe, world());
    auto all = build(recipe, processes, open_data(recipe, processes));
    kernels::Threads threads(1);
    std::vector<nn::Parameter*> parameters;
    for (const auto& chunk : all.model.chunks)
      for (auto* parameter : chunk->parameters()) parameters.push_back(parameter);
    const auto need = memory_of_stage(recipe, layout_figures(recipe, world().size()), processes.place.pipeline);
    EXPECT_TRUE(need.complete) << need.not_foreseen;
    const auto* optimizer = all.optimization.optimizer.get();
    training::StateLayout state_layout(parameters, optimizer);
    training::StateMemory memory(state_layout.segment(), processes.data);
    training::ModelState state(std::move(state_layout), std::move(memory), optimizer);
    state.initialise(threads, 1);
    training::TrainingStep work(all.model, all.optimization, all.data, state, threads, 1);
    work.backward(0);
    for (const auto& part : need.parts)
      if (part.name == "activations") {
        EXPECT_EQ(part.bytes, static_cast<std::int64_t>(work.arena().high_water())) << name;
      }
  }
}

}  // namespace
}  // namespace tessera::recipe
