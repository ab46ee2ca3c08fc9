// Rules about single options of a recipe: wrong values are refused, and those without effect told.
#include <gtest/gtest.h>

#include "framework/recipe/recipe.h"
#include "tests/own_folder.h"
#include "tests/recipe/groups.h"

namespace tessera::recipe {
namespace {

class OptionRules : public InOwnFolder {
 protected:
  OptionRules() {
    write("run.yaml",
          "model_config: {num_layers: 2, hidden_size: 32, num_attention_heads: 4, seq_length: 16, vocab_size: 64}\n"
          "dataset_config: {dataset_type: mock}\n"
          "training_config: {training_iters: 20}\n");
  }
  Recipe read(const Lines& sets) {
    report = {};
    return read_recipe("run.yaml", sets, registries, report);
  }
  Lines problems(const Lines& sets) {
    read(sets);
    return report.problems();
  }
  Registries registries;
  options::Report report;
};

TEST_F(OptionRules, LatentAttentionAlwaysRotates) {
  const Lines latent = {"model_config.multi_latent_attention=true", "model_config.position_embedding_type=none"};
  EXPECT_EQ(problems(latent + Lines{"model_config.rotary_base=0.5"}),
            Lines{"--set model_config.rotary_base: rotary_base is 0.5; expected a value above 1; give a larger one"});
  EXPECT_EQ(problems(latent + Lines{"model_config.rotary_percent=0.5"}),
            Lines{"--set model_config.rotary_percent: rotary_percent is 0.5, but multi-latent attention rotates all of "
                  "qk_pos_emb_head_dim; leave it out, or give another qk_pos_emb_head_dim"});
  const auto recipe =
      read(latent + Lines{"model_config.rotary_base=5000", "model_config.rotary_seq_len_interpolation_factor=4"});
  EXPECT_EQ(report.problems(), Lines{});
  Lines idle;
  for (const auto& one : recipe.without_effect()) idle.push_back(one.option);
  EXPECT_EQ(idle, Lines{"model_config.rotary_seq_len_interpolation_factor"});
}

TEST_F(OptionRules, WhatASingleOptionGetsWrongIsTold) {
  const std::vector<std::pair<Lines, std::string>> wrong = {
      {{"model_config.position_embedding_type=rope", "model_config.kv_channels=16",
        "model_config.rotary_percent=0.3125"},
       "rotary_percent 0.3125 gives 5 of the 16 dimensions of a head rotary embedding; they are rotated in pairs"},
      {{"optimizer_config.lr_decay_style=WSD"}, "lr_decay_style is WSD, but no length of its decay phase is given"},
      {{"optimizer_config.decoupled_lr=1e-5", "optimizer_config.decoupled_min_lr=1e-3"},
       "decoupled_min_lr is 0.001, above decoupled_lr 1e-05"},
  };
  for (const auto& [sets, words] : wrong) {
    const auto told = problems(sets);
    ASSERT_EQ(told.size(), 1U) << words;
    EXPECT_NE(told[0].find(words), std::string::npos) << told[0];
  }
}

TEST_F(OptionRules, ADecoupledRateThatRisesIsNoted) {
  EXPECT_EQ(problems({"optimizer_config.min_lr=1e-4", "optimizer_config.decoupled_lr=1e-5"}), Lines{});
  EXPECT_EQ(report.notes(), Lines{"--set optimizer_config.decoupled_lr: decoupled_lr is 1e-05, below min_lr 0.0001, "
                                  "which it reaches in the end: decoupled_min_lr is not given"});
}

TEST_F(OptionRules, ARuleThatConcernsNoParameterIsNoted) {
  EXPECT_EQ(problems({"optimizer_config.no_weight_decay_params=[.bias, typo.weight]",
                      "optimizer_config.param_rules=[{params: \"*.norm.*\"}, {params: \"*.weight\"}]"}),
            Lines{});
  const auto notes = report.notes();
  ASSERT_EQ(notes.size(), 2U);
  EXPECT_NE(notes[1].find("'*.norm.*' matches the name of no parameter; the nearest names are "), std::string::npos);
  EXPECT_NE(notes[0].find("'typo.weight' ends the name of no parameter"), std::string::npos);
}

}  // namespace
}  // namespace tessera::recipe
