#include "framework/interop/flags/flag_words.h"

#include <gtest/gtest.h>

#include "tests/interop/flags/tables.h"

namespace tessera {
namespace {

std::string in_flags(const std::string& message, const Lines& argv = {}) {
  return flags::FlagWords(megatron(), flags::flags_of(argv)).of(message);
}

TEST(FlagWords, AnOptionIsNamedByItsFlag) {
  EXPECT_EQ(in_flags("hidden_size 7 is odd; see model_config.num_layers."),
            "--hidden-size 7 is odd; see --num-layers.");
  EXPECT_EQ(in_flags("bf16 and fp16 are both true"), "--bf16 and --fp16 are both true");
}

TEST(FlagWords, WhatNoFlagSetsStays) {
  for (const auto* message : {"give mlp_has_bias: false", "no split, no seed, a stage", "3.5 of 1e-3, [2, 8]", ""})
    EXPECT_EQ(in_flags(message), message);
}

TEST(FlagWords, ABareFlagStandsForItsValue) {
  EXPECT_EQ(in_flags("give sequence_parallel true, or add_bias_linear: false, or both"),
            "give --sequence-parallel, or --disable-bias-linear, or both");
  EXPECT_EQ(in_flags("multi_latent_attention is false, but moe_layer_recompute is true"),
            "--multi-latent-attention is not given, but --moe-layer-recompute is given");
  EXPECT_EQ(in_flags("give add_bias_linear: true"), "give no --disable-bias-linear");
  EXPECT_EQ(in_flags("hidden_act is swiglu, not hidden_act gelu"), "--swiglu is given, not hidden_act gelu");
  EXPECT_EQ(in_flags("give moe_router_score_function: sigmoid"), "give --moe-router-score-function sigmoid");
}

TEST(FlagWords, OfSeveralFlagsTheGivenOneIsNamed) {
  EXPECT_EQ(in_flags("give position_embedding_type rope or none"), "give --position-embedding-type rope or none");
  EXPECT_EQ(in_flags("save_interval is 0"), "--save-interval is 0");
  EXPECT_EQ(in_flags("save_interval is 0", {"--persistent-save-interval", "0"}), "--persistent-save-interval is 0");
}

TEST(FlagWords, AFindingAboutADefaultIsAtTheFirstGivenFlagOfItsMessage) {
  auto given = flags::flags_of({"--num-layers", "8", "--hidden-size", "6"});
  given[0].at = {"run.sh", 3, "", 3}, given[1].at = {"run.sh", 4, "", 3};
  const flags::FlagWords words(megatron(), given);
  const auto place = [&](const options::Origin& at, const std::string& message) {
    options::Finding finding{.option = "model_config.num_attention_heads", .message = message, .at = at};
    words.put_into(finding);
    return text(finding.at);
  };
  EXPECT_EQ(place({"--num-attention-heads not given", 0, "", 1}, "hidden_size 6 of num_layers 8"), "run.sh:4");
  EXPECT_EQ(place({"--num-attention-heads not given", 0, "", 1}, "nothing"), "--num-attention-heads not given");
  EXPECT_EQ(place({"run.sh", 9, "", 3}, "hidden_size 6"), "run.sh:9");
  EXPECT_EQ(place({"--set model_config.num_layers", 0, "", 9}, "hidden_size 6"), "--set model_config.num_layers");
}

}  // namespace
}  // namespace tessera
