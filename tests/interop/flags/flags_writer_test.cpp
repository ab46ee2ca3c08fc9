#include "framework/interop/flags/flags_writer.h"

#include <gtest/gtest.h>

#include <set>

#include "framework/interop/flags/megatron_rules.h"
#include "framework/options/same.h"
#include "framework/recipe/recipe.h"
#include "tests/interop/flags/tables.h"
#include "tests/sanitized.h"

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
    const auto flags = flags::write_flags(recipe, megatron(), {});
    for (const auto& lost : flags.lost) ADD_FAILURE() << options::text_of(lost);
    expect_same(recipe, recipe_of(megatron_recipe(words_of(flags))));
  }
}

const std::string fp16 = "training_config: {fp16: true}\n", bf16 = "training_config: {bf16: true}\n";

TEST(FlagsWriter, AModelGoesToEachProgramAndBackAsTheSameRun) {
  const std::map<std::string, std::size_t> least = {
      {"megatron@core_v0.12.1", 15}, {"megatron@main", 15}, {"mindspeed-llm", 15},
      {"pai-megatron-patch", 15},    {"deepspeed", 15},     {"megatron-llm", 10}};
  // Null says as much as the word that is written.
  const std::set<std::string> except = {"training_config.save_interval", "training_config.ckpt_format",
                                        "model_config.apply_rope_fusion"};
  std::size_t number = 0;
  for (const auto& [program, fewest] : least) {
    const auto table = flags::FlagTable::named(program, options::Mappings());
    std::size_t written = 0;
    Lines lost;
    for (const auto& [model, text_of_model] : models_of_text()) {
      if (number++ % part_of_inputs != 0) continue;
      const auto recipe = run_of_model(model, bf16);
      const auto flags = flags::write_flags(recipe, table, {});
      for (const auto& one : flags.lost) lost.push_back(model + ": " + options::text_of(one));
      if (!flags.lost.empty()) continue;
      ++written;
      options::Report report;
      const auto again = recipe_of(table.convert(words_of(flags), facts(), report));
      expect_same_run(recipe, again, program + " " + model, except);
      if (program == flags::FlagTable::usual) flags::check_megatron_rules(flags.flags, 0, table, {}, report);
      EXPECT_EQ(report.problems(), Lines{}) << program << " " << model;
    }
    EXPECT_GE(written * part_of_inputs, fewest) << program << ": " << joined(lost, "\n");
  }
}

/// The command line of llama2_7b for Megatron-LM with `more`, which has no problem there.
Lines llama(const std::string& more) {
  const auto flags = flags::write_flags(run_of_model("models/llama2_7b.yaml", more), megatron(), {});
  for (const auto& lost : flags.lost) ADD_FAILURE() << options::text_of(lost);
  options::Report report;
  flags::check_megatron_rules(flags.flags, 0, megatron(), {}, report);
  EXPECT_EQ(report.problems(), Lines{}) << more;
  return words_of(flags);
}

bool has(const Lines& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

TEST(FlagsWriter, AnOptionIsSaidByOneFlag) {
  const auto words =
      llama(bf16 + "model_config: {recompute_granularity: full, recompute_method: uniform, recompute_num_layers: 1}\n");
  EXPECT_TRUE(has(words, "--num-layers") && has(words, "--seq-length") && has(words, "--recompute-num-layers"));
  for (const auto* flag : {"--encoder-num-layers", "--encoder-seq-length", "--checkpoint-num-layers",
                           "--activations-checkpoint-num-layers", "--iterations-to-skip", "--no-rope-fusion"})
    EXPECT_FALSE(has(words, flag)) << flag;
}

TEST(FlagsWriter, WhatMegatronDemandsBesideIsGiven) {
  EXPECT_TRUE(has(llama("model_config: {max_position_embeddings: null}\n"), "--max-position-embeddings"));
  EXPECT_TRUE(has(llama("model_config: {rotary_interleaved: true}\n"), "--no-rope-fusion"));
  EXPECT_TRUE(has(llama("model_config: {hidden_act: squared_relu, add_bias_linear: true}\n"), "--no-bias-gelu-fusion"));
  const auto at_the_end = llama("training_config: {save_interval: 0}\n");
  const auto interval = std::find(at_the_end.begin(), at_the_end.end(), "--save-interval");
  ASSERT_LT(interval + 1, at_the_end.end());
  EXPECT_EQ(*(interval + 1), "9") << "the length of the run";
}

TEST(FlagsWriter, ADefaultOfTheirsDoesNotReplaceOneThatIsDerived) {
  const std::string sum = "--accumulate-allreduce-grads-in-fp32";
  EXPECT_TRUE(has(llama(fp16), sum));
  EXPECT_FALSE(has(llama(bf16), sum)) << "--bf16 implies it";
  EXPECT_FALSE(has(llama(""), sum)) << "without effect";
  EXPECT_FALSE(has(llama("training_config: {fp16: true, accumulate_allreduce_grads_in_fp32: false}\n"), sum));
}

TEST(FlagsWriter, AListIsOneWordWhereOneIsTaken) {
  const auto layers = llama("model_config: {num_experts: 4, num_layers: 3}\nmoe_config: {moe_layer_freq: [0, 1, 1]}\n");
  EXPECT_TRUE(has(layers, "[0, 1, 1]"));
  const auto table = flags::FlagTable::named("megatron@main", options::Mappings());
  const auto window =
      flags::write_flags(run_of_model("models/llama2_7b.yaml", "model_config: {window_size: [64, 0]}\n"), table, {});
  EXPECT_EQ(window.lost.size(), 0u);
  EXPECT_TRUE(has(words_of(window), "(64,0)"));
}

TEST(FlagsWriter, NoFlagStandsThatSaysWhatIsSoAnyway) {
  const auto written = words_of(flags::write_flags(recipe_of(megatron_recipe(small_run())), megatron(), {}));
  const std::set<std::string> words(written.begin(), written.end());
  for (const auto& word : small_run()) EXPECT_TRUE(words.count(word)) << word;
  for (const auto* word : {"--swiglu", "--normalization", "--weight-decay", "--adam-beta1", "--bf16", "--optimizer"})
    EXPECT_FALSE(words.count(word)) << word;
}

TEST(FlagsWriter, WhatNoFlagSaysIsNamed) {
  auto recipe = recipe_of(megatron_recipe(small_run()));
  recipe.resolved.set("optimizer_config.optimizer_type", options::Value::of("lion", {}));
  const auto flags = flags::write_flags(recipe, megatron(), {});
  ASSERT_FALSE(flags.lost.empty());
  EXPECT_EQ(flags.lost.at(0).option, "optimizer_config.optimizer_type");
  EXPECT_TRUE(flags::write_flags(recipe, megatron(), {"optimizer_config.optimizer_type"}).lost.empty());
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
