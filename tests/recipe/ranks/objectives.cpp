// Objectives on four ranks: on every layout a run has the losses of one rank.
#include "tests/model/pair_objective.h"
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

TEST_F(RunsOfRanks, WithALossPerSampleHaveTheLossesOfOneRank) {
  expect_same({"training_config.calculate_per_sample_loss=true"});
}

}  // namespace
}  // namespace tessera::recipe
