#include "framework/interop/flags/flag_table.h"

#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "framework/interop/flags/options_page.h"
#include "framework/model/gpt_options.h"
#include "framework/options/yaml.h"
#include "framework/recipe/recipe.h"
#include "tests/interop/flags/tables.h"
#include "tests/tree.h"

namespace tessera {
namespace {

options::Value of_small_table(const std::vector<std::string>& argv) {
  const auto map = flags::FlagTable::from(
      options::parse_yaml("flags:\n"
                          "  --act: {to: model.act, absent: gelu}\n"
                          "  --exact: {also: {model.act: gelu_erf}}\n"
                          "  --bare: {to: model.bias, value: false, also: {model.act: gelu_erf}}\n"
                          "  --squared: {always: {model.act: squared_relu}}\n",
                          "table"));
  options::Report report;
  auto recipe = map.convert(argv, {}, report);
  report.must_be_good();
  return recipe;
}

std::string act(const std::vector<std::string>& argv) { return value_at(of_small_table(argv), "model.act").scalar; }

TEST(FlagTable, WhatAFlagImpliesReplacesWhatIsNotGiven) {
  EXPECT_EQ(act({}), "gelu");
  EXPECT_EQ(act({"--exact"}), "gelu_erf");
  EXPECT_EQ(act({"--bare"}), "gelu_erf");
  EXPECT_EQ(value_at(of_small_table({"--bare"}), "model.bias").scalar, "false");
}

TEST(FlagTable, WhatAFlagImpliesYieldsToAFlagThatSaysIt) {
  EXPECT_EQ(act({"--exact", "--act", "relu"}), "relu");
  EXPECT_EQ(act({"--act", "relu", "--exact"}), "relu");
}

TEST(FlagTable, WhatAFlagAlwaysSaysWinsWhereverItStands) {
  EXPECT_EQ(act({"--squared"}), "squared_relu");
  EXPECT_EQ(act({"--squared", "--act", "relu"}), "squared_relu");
  EXPECT_EQ(act({"--act", "relu", "--squared"}), "squared_relu");
  EXPECT_EQ(act({"--squared", "--exact"}), "squared_relu");
}

TEST(Flags, TheirCommandLineBecomesOurRecipe) {
  options::Report report;
  const auto recipe = megatron().convert({"--optimizer", "adam", "--lr", "1e-3", "--adam-beta2", "0.95",
                                          "--distributed-backend", "nccl", "--batch-size", "2"},
                                         recipe::all_facts({}), report);
  EXPECT_EQ(value_at(recipe, "optimizer_config.optimizer_type").scalar, "adamw");
  EXPECT_EQ(text(value_at(recipe, "optimizer_config.betas")), "[0.9, 0.95]");
  EXPECT_EQ(text(value_at(recipe, "optimizer_config.weight_decay")), "0.01");  // not given: their default
  EXPECT_EQ(report.notes().size(), 1u);
  EXPECT_EQ(report.problems().size(), 1u);
}

TEST(Flags, AFlagForAnotherTypeIsNotedNotPassedOn) {
  options::Report report;
  const auto recipe =
      megatron().convert({"--lr", "1e-3", "--adam-beta2", "0.9", "--optimizer", "sgd"}, recipe::all_facts({}), report);
  EXPECT_EQ(recipe.at("optimizer_config.betas"), nullptr);
  EXPECT_EQ(text(value_at(recipe, "optimizer_config.sgd_momentum")), "0.9");
  EXPECT_EQ(report.notes(), Lines{"--adam-beta2: betas has no effect with optimizer_type sgd"});
}

TEST(Flags, AWordThatAnOptionDoesNotHaveYetIsPlanned) {
  options::Report report;
  const auto flags = megatron()
                         .convert(flags::flags_of({"--position-embedding-type", "relative", "--tokenizer-type",
                                                   "NullTokenizer", "--recompute-granularity", "wrong"}),
                                  recipe::all_facts({}), report)
                         .flags;
  EXPECT_EQ(flags.at(0).status, flags::FlagStatus::planned);
  EXPECT_EQ(flags.at(0).why, "model_config.position_embedding_type has no 'relative' yet.");
  EXPECT_EQ(flags.at(1).status, flags::FlagStatus::mapped);
  EXPECT_EQ(flags.at(2).status, flags::FlagStatus::refused);
}

TEST(Flags, AWordIsRefusedWithItsReason) {
  options::Report report;
  const auto flags =
      megatron()
          .convert(flags::flags_of({"--tokenizer-type", "MultimodalTokenizer"}), recipe::all_facts({}), report)
          .flags;
  EXPECT_EQ(flags.at(0).status, flags::FlagStatus::refused);
  EXPECT_NE(flags.at(0).why.find("'MultimodalTokenizer' is refused: its images"), std::string::npos) << flags.at(0).why;
}

TEST(Flags, AZeroLevelBecomesTheOneWithTheSameResultsAsInAFlatRecipe) {
  const auto table = flags::FlagTable::named("mindspeed-core-ms", options::Mappings());
  for (const auto* level : {"z1", "z2", "z3"}) {
    options::Report report;
    const auto converted = table.convert(flags::flags_of({"--zero-level", level}), recipe::all_facts({}), report);
    EXPECT_EQ(converted.flags.at(0).status, flags::FlagStatus::mapped) << level;
    EXPECT_EQ(text(value_at(converted.recipe, "parallel_config.zero_level")), "z1");
    const auto told = text("--zero-level: ", level, " becomes z1, with the same results");
    const auto notes = report.notes();
    const bool says = std::ranges::any_of(notes, [&](const auto& one) { return one.find(told) != std::string::npos; });
    EXPECT_EQ(says, level != std::string("z1")) << level;
  }
}

TEST(Flags, EveryRowLeadsToAnOptionThatExists) {
  const auto known = every_key();
  const auto table = megatron();
  for (const auto& row : table.rows())
    EXPECT_TRUE(row.to.empty() || known.count(row.option()))
        << row.flag << " leads to " << row.to << ", which is no option";
}

TEST(Flags, TheirDefaultsAndWordsPassOurLimits) {
  const auto table = megatron();
  const auto facts = recipe::all_facts({});
  const auto complaints = [&](const Lines& argv) {
    options::Report report;
    recipe::read_recipe(table.convert(argv, facts, report), {}, report);
    Lines all;
    for (const auto& finding : report.findings())
      if (finding.message.find("missing") == std::string::npos) all.push_back(options::text_of(finding));
    return all;
  };
  EXPECT_EQ(complaints({}), Lines{});
  for (const auto& row : table.rows())
    for (const auto& [theirs, ours] : row.words) {
      Lines argv{row.flag, theirs};
      options::Report report;
      if (table.convert(flags::flags_of(argv), facts, report).flags.at(0).status == flags::FlagStatus::planned)
        continue;
      if (theirs == "WSD") argv.insert(argv.end(), {"--lr-wsd-decay-iters", "1"});
      for (const auto& line : complaints(argv))
        EXPECT_EQ(line.find("takes "), std::string::npos) << row.flag << " " << theirs << ": " << line;
    }
}

TEST(Flags, BecomeTheSameCut) {
  options::Report report;
  const auto cut = megatron().convert({"--num-layers",
                                       "8",
                                       "--hidden-size",
                                       "32",
                                       "--num-attention-heads",
                                       "4",
                                       "--seq-length",
                                       "16",
                                       "--max-position-embeddings",
                                       "16",
                                       "--train-iters",
                                       "3",
                                       "--lr",
                                       "1e-3",
                                       "--micro-batch-size",
                                       "1",
                                       "--global-batch-size",
                                       "8",
                                       "--tensor-model-parallel-size",
                                       "2",
                                       "--pipeline-model-parallel-size",
                                       "2",
                                       "--num-layers-per-virtual-pipeline-stage",
                                       "2",
                                       "--microbatch-group-size-per-virtual-pipeline-stage",
                                       "3",
                                       "--sequence-parallel",
                                       "--use-distributed-optimizer",
                                       "--overlap-grad-reduce",
                                       "--overlap-param-gather",
                                       "--ddp-bucket-size",
                                       "1000",
                                       "--use-tp-pp-dp-mapping",
                                       "--tp-comm-overlap"},
                                      recipe::all_facts({}), report);
  const auto recipe = recipe::read_recipe(cut, {}, report);
  EXPECT_EQ(report.problems(), Lines{});
  EXPECT_EQ(recipe.layer_plan().chunks(), 2);
  EXPECT_EQ(recipe.pipeline_shape(1).group, 3);
  EXPECT_EQ(recipe.pipeline_shape(1).micro_batches, 8);
  EXPECT_EQ(recipe.data_parallel.bucket_size, 1000);
  EXPECT_TRUE(recipe.data_parallel.use_distributed_optimizer && recipe.data_parallel.overlap_grad_reduce &&
              recipe.parameter_gather.overlap_param_gather && recipe.parallel.use_tp_pp_dp_mapping &&
              recipe.parallel.sequence_parallel);
}

TEST(Flags, OfMindSpeedAreTextsThatHoldLists) {
  options::Report report;
  const auto tree = flags::FlagTable::named("mindspeed-llm", options::Mappings())
                        .convert({"--num-layer-list", "1,2,3,2", "--noop-layers", "6,7",
                                  "--pipeline-model-parallel-size", "4", "--pipeline-model-parallel-layout", "Et|ttL"},
                                 recipe::all_facts({}), report);
  const auto recipe = recipe::read_recipe(tree, {}, report);
  EXPECT_EQ(recipe.parallel.num_layer_list.stages, (std::vector<std::vector<std::int64_t>>{{1}, {2}, {3}, {2}}));
  EXPECT_EQ(recipe.parallel.noop_layers.ids, (std::vector<std::int64_t>{6, 7}));
  EXPECT_EQ(recipe.parallel.pipeline_model_parallel_layout, "Et|ttL");
}

TEST(Flags, OfRecomputationAreReadAsMegatronAndMindSpeedMeanThem) {
  const auto options_of = [](const std::string& table, const Lines& argv) {
    options::Report report;
    const auto tree = flags::FlagTable::named(table, options::Mappings()).convert(argv, recipe::all_facts({}), report);
    const auto recipe = recipe::read_recipe(tree, {}, report);
    return *recipe.model.options<model::GptOptions>();
  };
  const auto norms = options_of("megatron", {"--num-layers", "8", "--recompute-granularity", "selective",
                                             "--recompute-modules", "core_attn", "layernorm"});
  EXPECT_TRUE(norms.recomputes(model::RecomputedModule::layernorm));
  EXPECT_TRUE(norms.recomputes(model::RecomputedModule::core_attn));
  const auto both =
      options_of("mindspeed-llm", {"--num-layers", "8", "--recompute-activation-function", "--recompute-norm",
                                   "--recompute-norm-num-layers", "3", "--recompute-activation-function-num-layers",
                                   "2", "--enable-recompute-layers-per-pp-rank"});
  EXPECT_TRUE(both.recompute_norm.value() && both.recompute_activation_function.value() &&
              both.enable_recompute_layers_per_pp_rank);
  EXPECT_EQ(both.recompute_norm_num_layers, 3);
  EXPECT_EQ(both.recompute_activation_function_num_layers, 2);
  const auto usual = options_of("mindspeed-llm", {"--num-layers", "8"});
  EXPECT_FALSE(usual.recompute_norm || usual.recompute_activation_function ||
               usual.enable_recompute_layers_per_pp_rank);
}

TEST(Docs, WhatLooksLikeATagIsEscapedOutsideOfCode) {
  EXPECT_EQ(flags::without_tags("<unk>, </s> and <!--, `<s>` stays; 1 < 2 <= 3"),
            "&lt;unk>, &lt;/s> and &lt;!--, `<s>` stays; 1 < 2 <= 3");
}

TEST(Docs, ThePageOfAllOptionsIsCurrent) {
  std::ifstream file(DOCS_DIR "/options.md");
  const std::string page(std::istreambuf_iterator<char>(file), {});
  EXPECT_TRUE(page == flags::options_page(recipe::all_facts({}), megatron()))
      << "docs/options.md is stale; run `tessera options --markdown > docs/options.md`";
}

}  // namespace
}  // namespace tessera
