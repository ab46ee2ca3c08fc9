// Stages of pairs on four ranks: on every layout a run has the losses and rewards of one rank.
#include "tests/pairs_of_rows.h"
#include "tests/recipe/ranks/runs.h"

namespace tessera::recipe {
namespace {

class PreferencesOfRanks : public RunsOfRanks {
 protected:
  PreferencesOfRanks() { data::register_pairs(registries.datasets); }
  /// A checkpoint of one rank, from which runs begin.
  std::string base(const Lines& more = {}) {
    Lines sets = {"training_config.training_iters=2", "training_config.seed=5", "optimizer_config.learning_rate=0.05"};
    sets.insert(sets.end(), more.begin(), more.end());
    if (world().rank() == 0) training::train(build(recipe_of("base", sets)), training::StopSignal{});
    world().all().all_gather("", "the base is there");
    return (folder_ / "base").string();
  }
  Lines of(const std::string& stage, const std::string& type, const Lines& more = {}) {
    Lines sets = {"training_config.stage=" + stage, "dataset_config.dataset_type=" + type,
                  "dataset_config.batch_size=2", "optimizer_config.learning_rate=1e-3"};
    sets.insert(sets.end(), more.begin(), more.end());
    return sets;
  }
};

/// fp32: sums of the same numbers in another order.
TEST_F(PreferencesOfRanks, DirectPreferencesHaveTheLossesOfOneRank) {
  const auto folder = base();
  expect_same(
      of("dpo", "pairs_of_rows", {"training_config.load_checkpoint=" + folder, "preference_config.dpo_beta=0.3"}),
      {{p + "zero_level=z1"}});
  const auto steps = written("alone1");
  EXPECT_NEAR(steps.front().at("loss"), 0.693, 0.3);  // with dropout the policy differs from the reference
  EXPECT_EQ(steps.front().count("rewards/margins"), 1U);
  EXPECT_EQ(steps.at(1).count("validation_rewards/accuracies"), 1U);
}

TEST_F(PreferencesOfRanks, DirectPreferencesOfAnyLengthHaveTheLossesOfOneRank) {
  const auto folder = base();
  expect_same_on({{p + "pipeline_model_parallel_size=4"},
                  {p + "context_parallel_size=2"},
                  {p + "tensor_model_parallel_size=2", p + "sequence_parallel=true"}},
                 of("dpo", "ragged_pairs",
                    {"preference_config.ref_model=" + folder, "preference_config.dpo_loss_type=ipo",
                     "dataset_config.num_workers=1"}));
}

TEST_F(PreferencesOfRanks, RewardModelsHaveTheLossesOfOneRank) {
  for (const std::string type : {"pairs_of_rows", "ragged_pairs"})
    expect_same(of("rm", type, {"model_config.score_head=true", "optimizer_config.learning_rate=1e-3"}),
                {{p + "zero_level=z1"}});
  EXPECT_GT(written("alone1").front().at("grad_norm"), 1e-3);
}

TEST_F(PreferencesOfRanks, StagesWithoutAReferenceHaveTheLossesOfOneRank) {
  for (const std::string stage : {"simpo", "orpo"})
    expect_same_on({{}, {p + "pipeline_model_parallel_size=2", p + "tensor_model_parallel_size=2"}},
                   of(stage, "pairs_of_rows"));
}

}  // namespace
}  // namespace tessera::recipe
