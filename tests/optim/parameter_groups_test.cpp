#include "framework/optim/parameter_groups.h"

#include <gtest/gtest.h>

namespace tessera::optim {
namespace {

constexpr const char* weight = "decoder.layers.3.mlp.linear_fc1.weight";

ParameterGroupOptions read(const std::vector<std::pair<std::string, std::string>>& options, options::Report& report) {
  options::Value recipe;
  for (const auto& [path, value] : options)
    recipe.set("optimizer_config." + path, options::Value::of(value, {"test", 0, "", 1}));
  options::Group group(recipe, "optimizer_config", report);
  return options::read_own<ParameterGroupOptions>(group);
}

TEST(ParameterGroups, APatternFitsWholeNames) {
  EXPECT_TRUE(fits("*", ""));
  EXPECT_TRUE(fits("a", "a"));
  EXPECT_FALSE(fits("a", "ab"));
  EXPECT_TRUE(fits("*.bias", "x.y.bias"));
  EXPECT_FALSE(fits("*.bias", "x.bias.y"));
  EXPECT_TRUE(fits("decoder.layers.*.mlp.*.weight", weight));
  EXPECT_FALSE(fits("decoder.layers.*.attention.*", weight));
  EXPECT_TRUE(fits("*a*a*", "banana"));
  EXPECT_FALSE(fits("*a*a*a*a*", "banana"));
}

TEST(ParameterGroups, AreMegatronsWithoutFurtherRules) {
  const ParameterGroupOptions none;
  for (const auto role : {ParameterRole::matrix, ParameterRole::word_embedding, ParameterRole::position_embedding,
                          ParameterRole::output_layer})
    EXPECT_EQ(group_of(none, role, weight), ParameterGroup());
  EXPECT_EQ(group_of(none, ParameterRole::norm_gain, "decoder.final_layernorm.weight").wd_mult, 0);
  EXPECT_EQ(group_of(none, ParameterRole::bias, "decoder.layers.0.mlp.linear_fc1.bias").wd_mult, 0);
  EXPECT_EQ(group_of(none, ParameterRole::output_bias, "output_layer.bias").wd_mult, 0);
}

TEST(ParameterGroups, RulesMultiplyAndEndsOfNamesSpare) {
  options::Report report;
  const auto o = read({{"no_weight_decay_params[0]", "fc1.weight"},
                       {"param_rules[0].params", "*.mlp.*"},
                       {"param_rules[0].lr_mult", "0.5"},
                       {"param_rules[1].params", "*linear_fc*"},
                       {"param_rules[1].lr_mult", "0.5"},
                       {"param_rules[1].wd_mult", "3"}},
                      report);
  EXPECT_EQ(report.problems(), std::vector<std::string>{});
  EXPECT_EQ(group_of(o, ParameterRole::matrix, weight), (ParameterGroup{0.25, 0, false}));
  EXPECT_EQ(group_of(o, ParameterRole::matrix, "decoder.layers.3.mlp.linear_fc2.weight"),
            (ParameterGroup{0.25, 3, false}));
  EXPECT_EQ(group_of(o, ParameterRole::word_embedding, "embedding.word_embeddings.weight"), ParameterGroup());
}

TEST(ParameterGroups, ARuleWithAnUnknownKeyOrANegativeFactorIsRefused) {
  for (const auto& [key, value] : {std::pair{"lr_mul", "2"}, {"lr_mult", "-1"}, {"wd_mult", "fast"}}) {
    options::Report report;
    read({{"param_rules[0].params", "*"}, {std::string("param_rules[0].") + key, value}}, report);
    EXPECT_EQ(report.problems().size(), 1U) << key;
  }
}

// The groups of create_loraplus_optimizer of PEFT 0.21.
TEST(ParameterGroups, LoraPlusIsForFactorsBAndVectors) {
  const LoraPlus o{.ratio = 16, .embedding = 0.25};
  const std::string layer = "decoder.layers.0.self_attention.linear_qkv.q_proj.";
  EXPECT_EQ(o.factor(ParameterRole::matrix, layer + "lora_A.weight"), 1);
  EXPECT_EQ(o.factor(ParameterRole::matrix, layer + "lora_B.weight"), 16);
  EXPECT_EQ(o.factor(ParameterRole::magnitude, layer + "lora_magnitude.weight"), 16);
  EXPECT_EQ(o.factor(ParameterRole::bias, "decoder.layers.0.mlp.linear_fc1.bias"), 16);
  EXPECT_EQ(o.factor(ParameterRole::norm_gain, "decoder.final_layernorm.weight"), 16);
  EXPECT_EQ(o.factor(ParameterRole::output_layer, "output_layer.weight"), 1) << "modules_to_save";
  EXPECT_EQ(o.factor(ParameterRole::expert_bias, "decoder.layers.0.mlp.router.expert_bias"), 1);
  const std::string words = "embedding.word_embeddings.";
  EXPECT_EQ(o.factor(ParameterRole::matrix, words + "lora_A.weight"), 0.25);
  EXPECT_EQ(o.factor(ParameterRole::matrix, words + "lora_B.weight"), 0.25);
  EXPECT_EQ(o.factor(ParameterRole::magnitude, words + "lora_magnitude.weight"), 16);
}

TEST(ParameterGroups, TheWordEmbeddingAndTheOutputLayerMayHaveTheirOwnRate) {
  ParameterGroupOptions o;
  o.decoupled_lr = 1e-3;
  EXPECT_TRUE(group_of(o, ParameterRole::word_embedding, "embedding.word_embeddings.weight").decoupled);
  EXPECT_TRUE(group_of(o, ParameterRole::output_layer, "output_layer.weight").decoupled);
  EXPECT_FALSE(group_of(o, ParameterRole::output_bias, "output_layer.bias").decoupled);
  EXPECT_FALSE(group_of(o, ParameterRole::position_embedding, "embedding.position_embeddings.weight").decoupled);
  EXPECT_FALSE(group_of(o, ParameterRole::matrix, weight).decoupled);
}

}  // namespace
}  // namespace tessera::optim
