#include "framework/interop/flags/nested_recipe.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "framework/interop/flags/forms.h"
#include "framework/options/yaml.h"
#include "framework/recipe/figures.h"
#include "framework/recipe/recipe.h"
#include "tests/interop/flags/tables.h"

namespace tessera {
namespace {

const std::string pangu = TESTS_DATA "/recipes/pangu_38b_nested.yaml";

recipe::Recipe read_file(const std::string& file, const Lines& sets, options::Report& report) {
  const recipe::Registries all;
  const options::Mappings mappings;
  const auto tree = options::read_yaml(file, sets, report);
  return recipe::read_recipe(flags::read_any(tree, mappings, recipe::all_facts(all), report).recipe, all, report);
}

/// The recipe that `words` are, with what is wrong.
options::Value flat(const std::string& words, options::Report& report) {
  return flags::read_nested(options::parse_yaml(words, "nested.yaml"), options::Mappings(), facts(), report);
}

TEST(NestedRecipe, ThePanguRecipeLoadsUnchangedAndFitsItsThirtyTwoRanks) {
  options::Report report;
  const auto recipe = read_file(pangu, {}, report);
  EXPECT_EQ(report.problems(), Lines{});
  recipe::check_ranks(recipe, 32, report);
  EXPECT_EQ(report.problems(), Lines{});
  const auto has = [&](const std::string& option, const std::string& value) {
    EXPECT_EQ(text_at(recipe.resolved, option), value) << option;
  };
  has("parallel_config.tensor_model_parallel_size", "8");
  has("parallel_config.num_layer_list", "[[4, 4, 4, 4], [4, 4, 4, 4], [4, 4, 4, 4], [4, 4, 4, 2]]");
  has("parallel_config.sequence_parallel", "true");
  has("parallel_config.gradient_accumulation_fusion", "false");
  has("training_config.bucket_size", "40000000");
  has("training_config.use_distributed_optimizer", "true");
  has("training_config.bf16", "true");
  has("training_config.accumulate_allreduce_grads_in_fp32", "true");
  has("model_config.params_dtype", "null");
  has("model_config.residual_connection_dtype", "bfloat16");
  has("model_config.fp16_lm_cross_entropy", "false");
  has("model_config.masked_softmax_fusion", "false");
  has("model_config.embedding_init_method_std", "0.5");
  has("model_config.init_method_std", "0.00884");
  has("model_config.norm_epsilon", "1e-05");
  has("model_config.normalization", "RMSNorm");
  has("model_config.seq_length", "4096");
  has("model_config.max_position_embeddings", "4096");
  has("model_config.group_query_attention", "true");
  has("model_config.num_query_groups", "8");
  has("model_config.hidden_act", "swiglu");
  has("model_config.untie_embeddings_and_output_weights", "true");
  has("model_config.qkv_has_bias", "false");
  has("model_config.add_bias_linear", "false");
  has("dataset_config.batch_size", "1");
  has("dataset_config.micro_batch_num", "4");
}

TEST(NestedRecipe, ItsModelHasTheParametersThatItsNumbersMake) {
  options::Report report;
  const auto recipe =
      read_file(pangu, {"dataset_config.dataset_type=mock", "training_config.training_iters=1"}, report);
  ASSERT_EQ(report.problems(), Lines{});
  const std::int64_t h = 6144, inner = 27648, words = 165664, heads = 48, groups = 8, width = h / heads;
  const auto layer = h * (heads + 2 * groups) * width + heads * width * h + 3 * h * inner + 4 * h;
  EXPECT_EQ(recipe::figures(recipe, 1).parameters, 2 * words * h + 62 * layer + h);
}

TEST(NestedRecipe, AMistakeIsNamedWithItsLineInTheUsersFile) {
  options::Report report;
  const auto recipe = read_file(pangu, {"accelerate_config.parallelization.tensor_parallel=7"}, report);
  EXPECT_FALSE(report.good());
  options::Report other;
  const auto tree = flat("accelerate_config:\n  parallelization:\n    tensor_paralel: 8\n", other);
  EXPECT_EQ(other.problems(),
            Lines{"nested.yaml:3: no key 'tensor_paralel' in accelerate_config.parallelization of a nested recipe; did "
                  "you mean 'tensor_parallel'?"});
}

TEST(NestedRecipe, AKeyInTheWrongMapIsToldWhereItStands) {
  options::Report report;
  flat("model_config:\n  llm:\n    blocks:\n      padded_size: 8\n", report);
  EXPECT_EQ(report.problems(),
            Lines{"nested.yaml:4: no key 'padded_size' in model_config.llm.blocks of a nested recipe; "
                  "it belongs in model_config.llm.tokenizer"});
}

TEST(NestedRecipe, AnOperatorInBothListsIsAMistake) {
  options::Report report;
  flat("accelerate_config:\n  precision:\n    fused_operators: rope, swiglu\n    nofused_operators: [swiglu]\n",
       report);
  EXPECT_EQ(report.problems(),
            Lines{"nested.yaml:4: 'swiglu' is in fused_operators and in nofused_operators; take it out of one"});
}

TEST(NestedRecipe, AnOperatorThatDoesNotExistIsAMistake) {
  options::Report report;
  flat("accelerate_config: {precision: {fused_operators: 'flash_atention'}}\n", report);
  EXPECT_EQ(report.problems(), Lines{"nested.yaml:1: no operator 'flash_atention'; did you mean 'flash_attention'?"});
}

TEST(NestedRecipe, AFusedNormIsTheNormItselfUnlessOneIsNamed) {
  options::Report report;
  const std::string fused = "accelerate_config: {precision: {fused_operators: rmsnorm}}\n";
  EXPECT_EQ(text_at(flat(fused, report), "model_config.normalization"), "FusedRMSNorm");
  const std::string named = "model_config: {llm: {blocks: {layernorm: {norm_type: LayerNorm}}}}\n";
  EXPECT_EQ(text_at(flat(fused + named, report), "model_config.normalization"), "LayerNorm");
  EXPECT_EQ(text_at(flat(named + fused, report), "model_config.normalization"), "LayerNorm");
  EXPECT_TRUE(report.good());
}

TEST(NestedRecipe, AWordWithoutCounterpartIsAMistake) {
  options::Report report;
  flat("accelerate_config:\n  precision:\n    compute_dtype: float8\n", report);
  EXPECT_EQ(
      report.problems(),
      Lines{"nested.yaml:3: accelerate_config.precision.compute_dtype is 'float8', which has no counterpart; take "
            "one of float32, bfloat16, float16"});
}

TEST(NestedRecipe, GroupsOfOursMayStandBesideTheirs) {
  options::Report report;
  const auto recipe =
      flat("train_config: {ms_training_config: {seed: 7}}\ntraining_config: {training_iters: 5}\n", report);
  EXPECT_EQ(text_at(recipe, "training_config.seed"), "7");
  EXPECT_EQ(text_at(recipe, "training_config.training_iters"), "5");
  EXPECT_EQ(text_at(recipe, "training_config.epochs"), "nothing");  // the length is said
  EXPECT_TRUE(report.good());
  flat("train_config: {ms_training_config: {seed: 7}}\ntraining_config: {seed: 8}\n", report);
  EXPECT_EQ(report.problems(),
            Lines{"nested.yaml:2: training_config.seed is 8 here, but 7 by nested.yaml:1; keep one of "
                  "them"});
}

TEST(NestedRecipe, WhatIsSetLaterWinsInEitherForm) {
  options::Report report;
  const auto recipe = read_file(pangu,
                                {"parallel_config.tensor_model_parallel_size=4", "training_config.training_iters=3",
                                 "model_config.llm.blocks.attention.head_num=24"},
                                report);
  EXPECT_EQ(text_at(recipe.resolved, "parallel_config.tensor_model_parallel_size"), "4");
  EXPECT_EQ(text_at(recipe.resolved, "model_config.num_attention_heads"), "24");
  EXPECT_EQ(text_at(recipe.resolved, "training_config.epochs"), "null");
}

const std::string flat_words =
    "parallel_config: {tensor_model_parallel_size: 2, num_layer_list: [[3], [3]], model_customize_staged: false}\n"
    "training_config: {training_iters: 100, eval_interval: null, bf16: true, loss_func_kwargs: {loss_func_type: "
    "CrossEntropyLoss}, grad_clip_kwargs: {grad_clip_type: ClipGlobalNorm, clip_value: 2.0}}\n"
    "optimizer_config: {optimizer_type: SpeedAdamW, betas: [0.9, 0.95]}\n"
    "model_config: {params_dtype: float32, hidden_dropout: 0.2, qkv_has_bias: false}\n"
    "dataset_config: {eod_id: -100}\n";

TEST(FlatRecipeOfCoreMs, ItsWordsAndDefaultsHold) {
  options::Report report;
  const auto recipe =
      flags::read_any(options::parse_yaml(flat_words, "flat.yaml"), options::Mappings(), recipe::all_facts({}), report)
          .recipe;
  EXPECT_EQ(report.problems(), Lines{});
  EXPECT_EQ(text_at(recipe, "optimizer_config.optimizer_type"), "adamw");
  EXPECT_EQ(text_at(recipe, "optimizer_config.clip_grad"), "2.0");
  EXPECT_EQ(text_at(recipe, "optimizer_config.lr_decay_style"), "constant");
  EXPECT_EQ(text_at(recipe, "training_config.eval_interval"), "nothing");
  EXPECT_EQ(text_at(recipe, "training_config.eval_iters"), "0");
  EXPECT_EQ(text_at(recipe, "model_config.params_dtype"), "nothing");
  EXPECT_EQ(text_at(recipe, "model_config.hidden_dropout_rate"), "nothing");
  EXPECT_EQ(text_at(recipe, "model_config.attention_dropout_rate"), "0");
  EXPECT_EQ(text_at(recipe, "model_config.qkv_has_bias"), "false");
  EXPECT_EQ(text_at(recipe, "model_config.mlp_has_bias"), "true");
  ASSERT_FALSE(report.notes().empty());
  EXPECT_EQ(report.notes().at(0).find("flat.yaml"), 0u);
}

/// A flat recipe of theirs with `more`, converted.
options::Value core_ms(const std::string& more) {
  options::Report report;
  const auto words = "dataset_config: {eod_id: 1, batch_size: 1}\n" + more;
  auto tree = flags::read_any(options::parse_yaml(words, "flat.yaml"), options::Mappings(), facts(), report).recipe;
  EXPECT_EQ(report.problems(), Lines{}) << more;
  return tree;
}

TEST(FlatRecipeOfCoreMs, TheirDefaultsHoldWhereTheyMatter) {
  const auto style = [](const std::string& optimizer, const char* name) {
    return text_at(core_ms("optimizer_config: {" + optimizer + "}\n"), std::string("optimizer_config.") + name);
  };
  const std::string rate = "learning_rate_scheduler_kwargs: {warmup_steps: 3";
  EXPECT_EQ(style(rate + "}", "lr_decay_style"), "cosine");
  EXPECT_EQ(style(rate + ", use_cosine: false}", "lr_decay_style"), "linear");
  EXPECT_EQ(style("learning_rate_scheduler_kwargs: null", "lr_decay_style"), "constant");
  EXPECT_EQ(style(rate + "}, lr_decay_style: linear", "lr_decay_style"), "linear");
  EXPECT_EQ(style("lr_decay_style: WSD", "lr_wsd_decay_style"), "linear");
  EXPECT_EQ(style("lr_decay_style: WSD, lr_wsd_decay_style: cosine", "lr_wsd_decay_style"), "cosine");
  EXPECT_EQ(style("lr_decay_style: cosine", "lr_wsd_decay_style"), "nothing");
  const auto balance = [](const std::string& more) {
    return text_at(core_ms(more), "moe_config.moe_router_load_balancing_type");
  };
  EXPECT_EQ(balance("moe_config: {num_experts: 4, moe_aux_loss_coeff: 0.1}\n"), "none");
  EXPECT_EQ(balance("model_config: {num_experts: 4}\n"), "none");
  EXPECT_EQ(balance("moe_config: {num_experts: 4, moe_router_load_balancing_type: aux_loss}\n"), "aux_loss");
  EXPECT_EQ(balance(""), "nothing");
}

TEST(FlatRecipeOfCoreMs, ANameThatLooksLikeANumberIsKept) {
  const auto tree = core_ms(
      "training_config: {output_dir: \"2024_01_05\", prefix: '7_1', train_iters: 1_000, bucket_size: 40_000_000}\n");
  EXPECT_EQ(text_at(tree, "training_config.output_dir"), "2024_01_05");
  EXPECT_EQ(text_at(tree, "training_config.prefix"), "7_1");
  EXPECT_EQ(text_at(tree, "training_config.bucket_size"), "40000000");
  EXPECT_EQ(text_at(tree, "training_config.train_iters"), "1000");
}

TEST(FlatRecipeOfCoreMs, ATestOfTheirOptimizerConverts) {
  options::Report report;
  const auto tree = options::parse_yaml(
      "parallel_config: {zero_level: z3}\ndataset_config: {batch_size: 1, dataset_size: 2, seq_length: 16}\n"
      "lora_config: {use_lora: false}\n",
      "mlp.yaml");
  const auto recipe = flags::read_any(tree, options::Mappings(), recipe::all_facts({}), report).recipe;
  EXPECT_EQ(report.problems(), Lines{});
  EXPECT_EQ(text_at(recipe, "parallel_config.zero_level"), "z1");
  EXPECT_EQ(text_at(recipe, "model_config.seq_length"), "16");
  EXPECT_EQ(text_at(recipe, "dataset_config.dataset_size"), "nothing");
  EXPECT_EQ(text_at(recipe, "lora_config.use_lora"), "false");
  const auto says_it = [](const auto& note) { return note.find("zero_level z3 becomes z1") != std::string::npos; };
  const auto notes = report.notes();
  EXPECT_EQ(std::count_if(notes.begin(), notes.end(), says_it), 1);
}

TEST(FlatRecipeOfCoreMs, ARecipeWithoutItsMarksIsOurs) {
  options::Report report;
  const auto tree = options::parse_yaml("optimizer_config: {optimizer_type: adamw, weight_decay: 0.2}\n", "ours.yaml");
  EXPECT_EQ(flags::form_of(tree, options::Mappings()), flags::RecipeForm::flat);
  EXPECT_EQ(text(flags::read_any(tree, options::Mappings(), {}, report).recipe), text(tree));
}

}  // namespace
}  // namespace tessera
