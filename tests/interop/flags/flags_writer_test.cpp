#include "framework/interop/flags/flags_writer.h"

#include <gtest/gtest.h>

#include <set>

#include "framework/options/same.h"
#include "framework/recipe/recipe.h"
#include "tests/interop/flags/tables.h"

namespace tessera {
namespace {

Lines words_of(const flags::WrittenFlags& flags) {
  Lines words;
  for (const auto& flag : flags.flags) {
    words.push_back(flag.flag);
    words.insert(words.end(), flag.values.begin(), flag.values.end());
  }
  return words;
}

TEST(FlagsWriter, FlagsGoThereAndBackAsTheSameRecipe) {
  const std::vector<Lines> all = {
      {},
      {"--swiglu", "--disable-bias-linear", "--normalization", "RMSNorm", "--position-embedding-type", "rope"},
      {"--no-bias-gelu-fusion"},
      {"--bf16", "--tensor-model-parallel-size", "2", "--sequence-parallel"},
      {"--fp16", "--initial-loss-scale", "4096", "--adam-beta1", "0.8"},
      {"--optimizer", "sgd", "--sgd-momentum", "0.5"},
      {"--recompute-granularity", "full", "--recompute-method", "block", "--recompute-num-layers", "1"},
      {"--recompute-activations", "--recompute-modules", "core_attn", "layernorm"},
      {"--lr-decay-style", "WSD", "--lr-wsd-decay-iters", "3", "--lr-wsd-decay-style", "cosine"},
      {"--group-query-attention", "--num-query-groups", "2", "--untie-embeddings-and-output-weights"},
      {"--weight-decay-incr-style", "linear", "--start-weight-decay", "0.1", "--end-weight-decay", "0.2"}};
  for (const auto& more : all) {
    const auto recipe = recipe_of(megatron_recipe(with(small_run(), more)));
    const auto flags = flags::write_flags(recipe.resolved, megatron(), facts(), {});
    for (const auto& lost : flags.lost) ADD_FAILURE() << options::text_of(lost);
    expect_same(recipe, recipe_of(megatron_recipe(words_of(flags))));
  }
}

TEST(FlagsWriter, NoFlagStandsThatSaysWhatIsSoAnyway) {
  const auto written =
      words_of(flags::write_flags(recipe_of(megatron_recipe(small_run())).resolved, megatron(), facts(), {}));
  const std::set<std::string> words(written.begin(), written.end());
  for (const auto& word : small_run()) EXPECT_TRUE(words.count(word)) << word;
  for (const auto* word : {"--swiglu", "--normalization", "--weight-decay", "--adam-beta1", "--bf16", "--optimizer"})
    EXPECT_FALSE(words.count(word)) << word;
}

TEST(FlagsWriter, WhatNoFlagSaysIsNamed) {
  auto recipe = recipe_of(megatron_recipe(small_run()));
  recipe.resolved.set("optimizer_config.optimizer_type", options::Value::of("lion", {}));
  const auto flags = flags::write_flags(recipe.resolved, megatron(), facts(), {});
  ASSERT_FALSE(flags.lost.empty());
  EXPECT_EQ(flags.lost.at(0).option, "optimizer_config.optimizer_type");
  EXPECT_TRUE(
      flags::write_flags(recipe.resolved, megatron(), facts(), {"optimizer_config.optimizer_type"}).lost.empty());
}

TEST(FlagsWriter, AScriptQuotesWhatBashWouldTakeApart) {
  flags::WrittenFlags flags;
  flags.flags = {{"--save", {"a b/$x/${HERE}"}, {"training_config.output_dir", 0, "", 0}},
                 {"--bf16", {}, {"training_config.bf16", 0, "", 0}}};
  EXPECT_EQ(flags::write_script(flags, "torchrun --nproc_per_node 2", "pretrain_gpt.py", {"why"}),
            "#!/bin/bash\n# why\n\nTRAINING_ARGS=(\n    --save \"a b/\\$x/${HERE}\"\n    --bf16\n)\n\n"
            "torchrun --nproc_per_node 2 pretrain_gpt.py \\\n    \"${TRAINING_ARGS[@]}\"\n");
}

}  // namespace
}  // namespace tessera
