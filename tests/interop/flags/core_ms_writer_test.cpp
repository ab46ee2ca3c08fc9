#include "framework/interop/flags/core_ms_writer.h"

#include <gtest/gtest.h>

#include "framework/interop/flags/forms.h"
#include "framework/interop/flags/nested_recipe.h"
#include "framework/interop/flags/recipe_writer.h"
#include "framework/options/same.h"
#include "framework/options/yaml.h"
#include "framework/recipe/recipe.h"
#include "tests/interop/flags/tables.h"
#include "tests/own_folder.h"
#include "tests/tree.h"

namespace tessera {
namespace {

class CoreMs : public InOwnFolder {};

TEST_F(CoreMs, TheNestedRecipeGoesThereAndBackAsItself) {
  options::Report report;
  const auto given = options::read_yaml(TESTS_DATA "/recipes/pangu_38b_nested.yaml");
  const auto recipe = recipe_of(flags::read_nested(given, options::Mappings(), facts(), report));
  const auto written = flags::write_nested_core_ms(recipe.resolved, facts(), options::Mappings(), report);
  EXPECT_EQ(value_at(written, "accelerate_config.parallelization.tensor_parallel").scalar, "8");
  EXPECT_EQ(value_at(written, "model_config.llm.blocks.attention.attention_type").scalar, "GQA");
  EXPECT_EQ(value_at(written, "accelerate_config.precision.compute_dtype").scalar, "bfloat16");
  EXPECT_EQ(written.at("model_config.hidden_size"), nullptr);
  write("nested.yaml", flags::write_recipe(written, facts(), {{}, ""}));
  const auto again = flags::read_nested(options::read_yaml("nested.yaml"), options::Mappings(), facts(), report);
  expect_same(recipe, recipe_of(again));
}

TEST_F(CoreMs, TheFlatRecipeGoesThereAndBackAsItself) {
  const auto recipe = recipe_of(options::parse_yaml(
      "training_config: {training_iters: 9, no_load_rng: false, seed: 3}\n"
      "model_config: {num_layers: 4, hidden_size: 32, num_attention_heads: 4, seq_length: 16, vocab_size: 64, "
      "attention_dropout_rate: 0.2}\n"
      "optimizer_config: {betas: [0.8, 0.9], clip_grad: 0.5}\ndataset_config: {batch_size: 2}\n"
      "parallel_config: {pipeline_model_parallel_size: 2, num_layer_list: [1, 3]}\n",
      "t"));
  options::Report report;
  const auto written = flags::write_flat_core_ms(recipe, options::Mappings(), report);
  EXPECT_EQ(report.problems(), std::vector<std::string>{});
  EXPECT_EQ(value_at(written, "model_config.attention_dropout").scalar, "0.2");
  EXPECT_EQ(value_at(written, "optimizer_config.optimizer_type").scalar, "SpeedAdamW");
  EXPECT_EQ(value_at(written, "training_config.no_load_rng").scalar, "false") << "true is their default";
  write("flat.yaml", flags::write_recipe(written, facts(), {{}, ""}));
  expect_same_run(recipe, recipe_of(options::read_yaml("flat.yaml")), "flat.yaml");
}

TEST_F(CoreMs, AModelGoesToTheFlatRecipeAndBackAsTheSameRun) {
  for (const auto& [model, text_of_model] : models_of_text()) {
    const auto recipe = run_of_model(model, "training_config: {bf16: true}\n");
    options::Report lost, report;
    const auto written = flags::write_flat_core_ms(recipe, options::Mappings(), lost);
    write("flat.yaml", flags::write_recipe(written, facts(), {{}, ""}));
    auto tree = flags::read_any(options::read_yaml("flat.yaml"), options::Mappings(), facts(), report).recipe;
    // Evaluation has no key, and is off there.
    std::set<std::string> except = {"training_config.eval_iters"};
    for (const auto& finding : lost.findings()) {  // as --allow-refused leaves it out
      except.insert(finding.option);
      tree.set(finding.option, value_at(recipe.resolved, finding.option));
    }
    expect_same_run(recipe, recipe_of(tree), model, except);
  }
}

TEST_F(CoreMs, ANullThatIsNoDefaultThereIsWritten) {
  options::Report report;
  const auto recipe =
      run_of_model("models/llama2_7b.yaml", "model_config: {add_bias_linear: false, ffn_hidden_size: null}\n");
  const auto written = flags::write_flat_core_ms(recipe, options::Mappings(), report);
  for (const auto* bias : {"qkv_has_bias", "out_proj_has_bias", "mlp_has_bias"})
    EXPECT_EQ(text_at(written, std::string("model_config.") + bias), "false") << bias;
  EXPECT_EQ(text_at(written, "model_config.ffn_hidden_size"), effective(recipe, "model_config.ffn_hidden_size").scalar);
  EXPECT_EQ(text_at(written, "model_config.kv_channels"), "nothing") << "null there, too";
}

TEST_F(CoreMs, WhatItHasNoKeyForIsNamed) {
  const auto recipe = recipe_of(options::parse_yaml(
      "training_config: {training_iters: 9}\noptimizer_config: {decoupled_lr: 0.1}\ndataset_config: {dataset_type: "
      "mock}\n"
      "model_config: {num_layers: 4, hidden_size: 32, num_attention_heads: 4, seq_length: 16, vocab_size: 64}\n",
      "t"));
  options::Report report;
  flags::write_flat_core_ms(recipe, options::Mappings(), report);
  ASSERT_EQ(report.problems().size(), 2u);
  EXPECT_TRUE(report.concerns("optimizer_config.decoupled_lr") && report.concerns("dataset_config.dataset_type"));
}

}  // namespace
}  // namespace tessera
