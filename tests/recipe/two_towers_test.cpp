// An architecture that is not the GPT, in recipes: what is checked, drawn and foreseen.
#include <gtest/gtest.h>

#include "framework/recipe/layout_figures.h"
#include "framework/recipe/memory.h"
#include "framework/recipe/saved_layout.h"
#include "tests/own_folder.h"
#include "tests/recipe/groups.h"
#include "tests/recipe/two_towers_recipe.h"

namespace tessera::recipe {
namespace {

class TwoTowersInRecipes : public InOwnFolder {
 protected:
  TwoTowersInRecipes() {
    write_token_file("data", 7);
    write("run.yaml", two_towers_recipe("data"));
  }
  static Recipe read(const Lines& sets = {}) { return read_recipe("run.yaml", sets, with_two_towers()); }
  static Lines mistakes(const Lines& sets) {
    options::Report report;
    read_recipe("run.yaml", sets, with_two_towers(), report);
    Lines all;
    for (const auto& finding : report.findings()) all.push_back(options::sentence_of(finding));
    return all;
  }
};

TEST_F(TwoTowersInRecipes, EveryMistakeIsToldAtOnce) {
  // A limit of an option, a rule of the options, one of the architecture, and an option of another architecture.
  const auto all = mistakes({m + "encoder_heads=0", m + "decoder_width=4", m + "seq_length=6", m + "num_layers=3"});
  const auto told = [&](const std::string& words) {
    return std::any_of(all.begin(), all.end(), [&](const auto& one) { return one.find(words) != std::string::npos; });
  };
  EXPECT_EQ(all.size(), 4U) << testing::PrintToString(all);
  EXPECT_TRUE(told("encoder_heads must be >= 1, is 0; give a value >= 1")) << testing::PrintToString(all);
  EXPECT_TRUE(told("decoder_width is 4, but encoder_width is 8; give the decoder at least the width of the encoder"))
      << testing::PrintToString(all);
  EXPECT_TRUE(told("the encoder reads blocks of 4 tokens, but seq_length is 6; give a multiple of 4"))
      << testing::PrintToString(all);
  EXPECT_TRUE(told("num_layers belongs to model_type gpt, but two_towers is chosen")) << testing::PrintToString(all);
}

TEST_F(TwoTowersInRecipes, TheSizesOfBothTowersMustBeDivisible) {
  EXPECT_EQ(mistakes({p + "tensor_model_parallel_size=4"}),
            (Lines{"tensor_model_parallel_size 4 does not divide encoder_heads 2; make it a multiple of 4, or change "
                   "parallel_config.tensor_model_parallel_size",
                   "tensor_model_parallel_size 4 does not divide decoder_heads 2; make it a multiple of 4, or change "
                   "parallel_config.tensor_model_parallel_size"}));
  EXPECT_EQ(mistakes({p + "pipeline_model_parallel_size=6"}),
            Lines{"encoder_layers + decoder_layers is 5, fewer than 6 stages that each need one; give fewer stages or "
                  "more layers"});
  EXPECT_EQ(
      mistakes({p + "pipeline_model_parallel_size=2", p + "num_layer_list=[3,3]"}),
      Lines{"num_layer_list [[3], [3]] adds up to 6 layers; encoder_layers + decoder_layers is 5; make it add up to "
            "5"});
  EXPECT_EQ(mistakes({p + "expert_model_parallel_size=2"}),
            Lines{"expert_model_parallel_size is 2, but the model has no experts; leave it out, or give "
                  "model_config.num_experts"});
}

TEST_F(TwoTowersInRecipes, StagesAreDrawnWithTheLayersOfEachTower) {
  const auto recipe = read({p + "pipeline_model_parallel_size=2", p + "num_layer_list=[[1,2],[1,1]]"});
  const auto plan = recipe.layer_plan();
  EXPECT_EQ(plan.drawing(),
            "stage 0 | embedding, layer encoder 0 | layers encoder 2, decoder 0\n"
            "stage 1 | layer encoder 1 | layer decoder 1, loss\n");
  EXPECT_EQ(layers_told(plan, 0), "embedding, encoder 0 | encoder 2, decoder 0");
  const auto figures = layout_figures(recipe, 2);
  ASSERT_EQ(figures.costs.size(), 2U);
  // A layer of width C has matrices of 8 C^2 weights, and the projection 8 x 12: costs follow from the parameters.
  EXPECT_EQ(figures.costs[0], (std::vector<double>{8.0 * 64, 8.0 * 64 + 8.0 * 144 + 96}));
  EXPECT_EQ(figures.costs[1], (std::vector<double>{8.0 * 64, 8.0 * 144 + 64.0 * 12}));
}

TEST_F(TwoTowersInRecipes, NoWeightIsInTwoStagesOrInNone) {
  const auto whole = saved_parts(read(), 64).front();
  const auto cut =
      saved_parts(read({p + "pipeline_model_parallel_size=2", p + "virtual_pipeline_model_parallel_size=2"}), 64);
  ASSERT_EQ(cut.size(), 2U);
  std::vector<std::string> expected, names;
  for (const auto& part : whole) expected.push_back(part.name);
  for (const auto& stage : cut)
    for (const auto& part : stage) names.push_back(part.name);
  std::sort(expected.begin(), expected.end());
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names, expected);
}

}  // namespace
}  // namespace tessera::recipe
