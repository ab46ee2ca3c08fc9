// Objectives on four ranks: on every layout a run has the losses of one rank.
#include "tests/model/pair_objective.h"
#include "tests/pairs_of_rows.h"
#include "tests/recipe/ranks/runs.h"

namespace tessera::recipe {
namespace {

std::unique_ptr<model::Objective> make_pairs(const options::NoOptions&) {
  return std::make_unique<model::PairObjective>();
}

TEST_F(RunsOfRanks, WithAnObjectiveThatCouplesSamplesHaveTheLossesOfOneRank) {
  registries.objectives.add("pairs", make_pairs, "Prefers the first sample of each pair.");
  expect_same({"training_config.objective=pairs"});
  EXPECT_EQ(written("alone1").front().count("pair_margin"), 1U);
}

/// Batch sizes and orders count pairs, so that no layout tears one.
TEST_F(RunsOfRanks, OfPairsOfRowsHaveTheLossesOfOneRank) {
  registries.objectives.add("pairs", make_pairs, "Prefers the first sample of each pair.");
  data::register_pairs(registries.datasets);
  for (const std::string type : {"pairs_of_rows", "ragged_pairs"})
    for (const std::string micro : {"1", "2"})
      expect_same_on({{}, {p + "pipeline_model_parallel_size=4"}, {p + "context_parallel_size=2"}},
                     {"training_config.objective=pairs", "dataset_config.dataset_type=" + type,
                      "dataset_config.batch_size=" + micro, "dataset_config.num_workers=1"});
}

TEST_F(RunsOfRanks, WithALossPerSampleHaveTheLossesOfOneRank) {
  expect_same({"training_config.calculate_per_sample_loss=true"});
}

}  // namespace
}  // namespace tessera::recipe
