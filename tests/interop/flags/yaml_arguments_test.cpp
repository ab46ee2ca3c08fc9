#include "framework/interop/flags/yaml_arguments.h"

#include <gtest/gtest.h>

#include "framework/interop/flags/forms.h"
#include "framework/options/yaml.h"
#include "framework/recipe/recipe.h"
#include "tests/interop/flags/tables.h"

namespace tessera {
namespace {

const std::string layer = "language_model:\n  num_layers: 2\n  hidden_size: 8\n  num_attention_heads: 2\n";

options::Value read(const std::string& words, options::Report& report) {
  return flags::read_any(options::parse_yaml(words, "gpt.yaml"), options::Mappings(), recipe::all_facts({}), report)
      .recipe;
}

TEST(YamlArguments, EachNameBecomesTheFlagThatGivesIt) {
  options::Report report;
  const auto recipe =
      read(layer +
               "  layernorm_epsilon: 1.e-6\n  apply_rope_fusion: False\n  add_bias_linear: false\n"
               "model_parallel:\n  tensor_model_parallel_size: 2\n  bf16: True\n  fp16: False\n"
               "  sequence_parallel: True\nlr: 2.5e-4\nadam_beta2: 0.95\nrampup_batch_size: [32, 32, 1000]\n"
               "save: null\nseq_length: 16\n",
           report);
  EXPECT_EQ(report.problems(), Lines{});
  EXPECT_EQ(text_at(recipe, "model_config.num_layers"), "2");
  EXPECT_EQ(text_at(recipe, "model_config.norm_epsilon"), "1.e-6");
  EXPECT_EQ(text_at(recipe, "model_config.apply_rope_fusion"), "false");
  EXPECT_EQ(text_at(recipe, "model_config.add_bias_linear"), "false");
  EXPECT_EQ(text_at(recipe, "parallel_config.sequence_parallel"), "true");
  EXPECT_EQ(text_at(recipe, "training_config.bf16"), "true");
  EXPECT_EQ(text_at(recipe, "training_config.fp16"), "false");
  EXPECT_EQ(text_at(recipe, "optimizer_config.betas"), "[0.9, 0.95]");
  EXPECT_EQ(text_at(recipe, "dataset_config.rampup_batch_size"), "[32, 32, 1000]");
  EXPECT_EQ(text_at(recipe, "training_config.output_dir"), "nothing");  // null says nothing
  const auto* rate = recipe.at("optimizer_config.learning_rate");
  ASSERT_NE(rate, nullptr);
  EXPECT_EQ(rate->origin.line, 13);
}

TEST(YamlArguments, TheActivationIsTheOneThatSuchAFileMakes) {
  options::Report report;
  const auto act = [&](const std::string& word, const std::string& more) {
    return text_at(read(layer + "  activation_func: " + word + "\n" + more, report), "model_config.hidden_act");
  };
  EXPECT_EQ(act("swiglu", ""), "swiglu");
  EXPECT_EQ(act("squaredrelu", ""), "squared_relu");
  EXPECT_EQ(act("gelu", ""), "gelu_erf");
  EXPECT_EQ(act("gelu", "wrap_with_ddp: true\n"), "gelu");  // MindSpeed-Core-MS's is the tanh form
  EXPECT_TRUE(report.good());
}

TEST(YamlArguments, NamesOfTheCommandLineDoNotChooseTheActivation) {
  options::Report report;
  const auto act = [&](const std::string& word, const std::string& more) {
    return text_at(read(layer + "  activation_func: " + word + "\n" + more, report), "model_config.hidden_act");
  };
  EXPECT_EQ(act("gelu", "swiglu: True\n"), "gelu_erf");
  EXPECT_EQ(act("gelu", "squared_relu: True\n"), "gelu_erf");
  EXPECT_EQ(act("swiglu", "swiglu: False\nsquared_relu: True\n"), "swiglu");
  EXPECT_EQ(report.problems(), Lines{});
}

TEST(YamlArguments, TheNumberOfQueryGroupsAloneSaysWhetherHeadsShareThem) {
  options::Report report;
  const auto groups = [&](const std::string& inside, const std::string& more) {
    const auto tree = read(layer + inside + more, report);
    const auto shares = text_at(tree, "model_config.group_query_attention");
    return shares == "true" ? text_at(tree, "model_config.num_query_groups") : shares;
  };
  const std::string off = "group_query_attention: False\n", on = "group_query_attention: True\n";
  EXPECT_EQ(groups("  num_query_groups: 2\n", ""), "2");
  EXPECT_EQ(groups("  num_query_groups: 1\n", off), "1");
  EXPECT_EQ(groups("  num_query_groups: null\n", off), "false");
  EXPECT_EQ(groups("  num_query_groups: null\n", on), "false");
  EXPECT_EQ(groups("", on), "false");
  EXPECT_EQ(report.problems(), Lines{});
}

TEST(YamlArguments, ANameInTheWrongGroupIsTold) {
  options::Report report;
  read(layer + "  lr: 1e-3\nmodel_parallel:\n  ffn_hidden_size: 32\nbf16: true\n", report);
  EXPECT_EQ(
      report.problems(),
      (Lines{"gpt.yaml:5: 'lr' stands in language_model, but belongs into none; move it there",
             "gpt.yaml:7: 'ffn_hidden_size' stands in model_parallel, but belongs into language_model; move it there",
             "gpt.yaml:8: 'bf16' stands in no group, but belongs into model_parallel; move it there"}));
}

TEST(YamlArguments, ANameThatNobodyKnowsIsToldWithTheNearest) {
  options::Report report;
  read(layer + "clip_grid: 1\n", report);
  ASSERT_EQ(report.problems().size(), 1u);
  EXPECT_EQ(report.problems().at(0),
            "gpt.yaml:5: no argument 'clip_grid' of Megatron-LM core_v0.12.1; did you mean 'clip_grad'?");
}

TEST(YamlArguments, WhatIsNoValueOfASwitchIsTold) {
  options::Report report;
  read(layer + "model_parallel:\n  bf16: maybe\n", report);
  EXPECT_EQ(report.problems(), Lines{"gpt.yaml:6: bf16 takes true / false, not 'maybe'; give one of them"});
}

TEST(YamlArguments, TheirDefaultsHoldWhereNothingIsSaid) {
  options::Report report;
  const auto theirs = read(layer, report);
  EXPECT_EQ(text_at(theirs, "training_config.seed"), "1234");
  const auto core_ms = read(layer + "resume_training: false\n", report);
  EXPECT_EQ(text_at(core_ms, "model_config.transformer_impl"), "local");
  EXPECT_EQ(text_at(core_ms, "training_config.crc_check"), "false");
}

TEST(YamlArguments, WhoseFileItIsShowInItsNames) {
  const options::Mappings mappings;
  const auto form = [&](const std::string& words) {
    return flags::form_of(options::parse_yaml(words, "x.yaml"), mappings);
  };
  EXPECT_EQ(form(layer), flags::RecipeForm::megatron_yaml);
  EXPECT_EQ(form(layer + "wrap_with_ddp: true\n"), flags::RecipeForm::br_master);
  EXPECT_EQ(form("model_parallel: {zero_level: z1}\n"), flags::RecipeForm::br_master);
  EXPECT_EQ(form("MODEL_ARGS: {--lr: 1}\n"), flags::RecipeForm::model_args);
  EXPECT_EQ(form("accelerate_config: {}\n"), flags::RecipeForm::nested);
  EXPECT_EQ(form("model_config: {llm: {}}\n"), flags::RecipeForm::nested);
  EXPECT_EQ(form("model_config: {num_layers: 2}\n"), flags::RecipeForm::flat);
  EXPECT_EQ(form("anything: 2\n"), flags::RecipeForm::none);
}

TEST(YamlArguments, ListsOfMindSpeedCoreMsKeepTheirForm) {
  options::Report report;
  const auto recipe = read(layer +
                               "  recompute_config:\n    recompute: [[1, 0], [1, 1]]\n  fa_config: {pre_tokens: 64}\n"
                               "loss_func_kwargs: {loss_func_type: CrossEntropyLoss}\nwrap_with_ddp: true\n",
                           report);
  EXPECT_EQ(report.problems(), Lines{});
  EXPECT_EQ(text_at(recipe, "parallel_config.recompute"), "[[1, 0], [1, 1]]");
  EXPECT_EQ(text_at(recipe, "model_config.window_size"), "[64, 0]");
}

TEST(YamlArguments, AHalfTypeOverrulesTheTypeOfWeights) {
  options::Report report;
  const auto recipe = read(layer + "model_parallel: {bf16: true, params_dtype: float32}\n", report);
  EXPECT_EQ(text_at(recipe, "model_config.params_dtype"), "nothing");
  EXPECT_EQ(text_at(read(layer + "model_parallel: {params_dtype: bfloat16}\n", report), "model_config.params_dtype"),
            "bfloat16");
}

TEST(YamlArguments, GroupsOfOursAreLaidOnTop) {
  options::Report report;
  const auto recipe = read(layer + "training_config: {seed: 5}\nseed: 4\n", report);
  EXPECT_EQ(text_at(recipe, "training_config.seed"), "5");
}

}  // namespace
}  // namespace tessera
