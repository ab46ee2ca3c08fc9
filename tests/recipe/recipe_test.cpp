#include "framework/recipe/recipe.h"

#include <gtest/gtest.h>

#include <set>

#include "framework/model/gpt_options.h"
#include "framework/options/json_schema.h"
#include "framework/options/yaml.h"
#include "framework/recipe/build.h"
#include "framework/recipe/figures.h"
#include "framework/recipe/planned_options.h"
#include "tests/own_folder.h"
#include "tests/recipe/groups.h"

namespace tessera::recipe {
namespace {

// What a recipe must say, and nothing more.
const std::string least =
    "model_config: {num_layers: 2, hidden_size: 32, num_attention_heads: 4, seq_length: 16, vocab_size: 64}\n"
    "dataset_config: {dataset_type: mock}\n";
const std::string length = "training_config: {training_iters: 20}\n";

class RecipeFile : public InOwnFolder {
 protected:
  Recipe read(const std::string& yaml, const Lines& sets = {}) {
    write("run.yaml", yaml);
    report = {};
    return read_recipe("run.yaml", sets, registries, report);
  }
  Lines problems(const std::string& yaml, const Lines& sets = {}) {
    read(yaml, sets);
    return report.problems();
  }
  Registries registries;
  options::Report report;
};

TEST_F(RecipeFile, TheLeastRecipeIsReadAndTheRestAreDefaults) {
  const auto recipe = read(least + length);
  EXPECT_EQ(report.problems(), Lines{});
  EXPECT_EQ(report.notes(), Lines{});
  EXPECT_EQ(recipe.training.seed, 1234);
  EXPECT_EQ(recipe.optimizer.type, "adamw");
  EXPECT_EQ(recipe.decay.type, "linear");
  EXPECT_EQ(recipe.model.type, "gpt");
  EXPECT_EQ(recipe.clipping.clip_grad, 1.0);
  EXPECT_EQ(recipe.model.options<model::GptOptions>()->num_layers, 2);
  EXPECT_EQ(recipe.length().samples, 20);
}

TEST_F(RecipeFile, SevenMistakesOverARecipeAndItsBaseGiveSevenMessages) {
  write("base.yaml",
        "model_config:\n"
        "  num_layers: two\n"
        "  hidden_sise: 32\n"
        "optimizer_config:\n"
        "  betas: [0.9, 1.5]\n"
        "  sgd_momentum: 0.5\n");
  EXPECT_EQ(
      problems("base: base.yaml\n"
               "training_config:\n"
               "  training_iters: 5\n"
               "  seed: 1\n"
               "  seed: 2\n"
               "model_config: {hidden_size: 32, num_attention_heads: 4, seq_length: 16, vocab_size: 64}\n"
               "optimiser_config: {}\n"
               "dataset_config: {dataset_type: mock}\n"
               "parallel_config: {encoder_tensor_model_parallel_size: 2}\n"),
      (Lines{"base.yaml:2: num_layers takes int, not 'two'; give a whole number",
             "base.yaml:3: no option 'hidden_sise' in model_config; did you mean 'hidden_size'?",
             "base.yaml:5: betas must be < 1, is [0.9, 1.5]; give a value < 1",
             "base.yaml:6: sgd_momentum belongs to optimizer_type sgd, but adamw is chosen; leave it out, or choose "
             "optimizer_type: sgd",
             "run.yaml:5: 'seed' is given twice, first in line 4; keep one of them",
             "run.yaml:7: no group 'optimiser_config'; did you mean 'optimizer_config'?",
             "run.yaml:9: encoder_tensor_model_parallel_size is not implemented yet; leave it out or give 0"}));
}

TEST_F(RecipeFile, WhatIsMissingIsAskedForWhereItsGroupStands) {
  EXPECT_EQ(
      problems(
          "model_config: {hidden_size: 32, num_attention_heads: 4, seq_length: 16}\n\ntraining_config:\n  seed: 1\n"),
      (Lines{"run.yaml:1: model_config.num_layers is missing; give int: Number of transformer layers.",
             "run.yaml:1: vocab_size is not given and cannot be derived, because tokenizer_type is none; give "
             "model_config.vocab_size, or choose a tokenizer",
             "run.yaml:3: training_config.training_iters is missing; give it in steps, or "
             "dataset_config.train_samples, or "
             "epochs"}));
}

TEST_F(RecipeFile, OtherSpellingsAreAcceptedAndNoted) {
  const auto recipe = read(least +
                           "training_config: {train_iters: 9}\noptimizer_config:\n  optimizer: AdamWeightDecay\n  lr: "
                           "1e-4\n  adam_beta2: 0.95\n");
  EXPECT_EQ(report.problems(), Lines{});
  EXPECT_EQ(report.notes(),
            (Lines{"run.yaml:3: train_iters is read as training_iters",
                   "run.yaml:5: optimizer is read as optimizer_type", "run.yaml:5: AdamWeightDecay is read as adamw",
                   "run.yaml:6: lr is read as learning_rate", "run.yaml:7: adam_beta2 is read as betas[1]"}));
  EXPECT_EQ(text(*recipe.resolved.at("optimizer_config.betas")), "[0.9, 0.95]");
}

TEST_F(RecipeFile, WhatABaseSaysOfATypeNotChosenIsLeftOut) {
  write("common.yaml", "optimizer_config: {betas: [0.9, 0.95]}\n");
  EXPECT_EQ(problems("base: common.yaml\noptimizer_config: {optimizer_type: sgd}\n" + least + length), Lines{});
  EXPECT_EQ(report.notes(), Lines{"common.yaml:1: betas belongs to optimizer_type adam_l2, adamw or muon, but sgd is "
                                  "chosen (run.yaml:2); left out"});
}

TEST_F(RecipeFile, AKeyThatIsNotBuiltTakesItsNeutralValuesAlone) {
  EXPECT_EQ(
      problems(least + length +
               "parallel_config: {overlap_p2p_comm: true, expert_model_parallel_size: 1, use_custom_fsdp: false}\n"
               "moe_config: {num_experts: 1}\nlora_config: {qlora_quant_type: nf4}\n"),
      Lines{});
  EXPECT_EQ(
      problems(least + length +
               "parallel_config: {encoder_tensor_model_parallel_size: 2}\nlora_config: {qlora_quant_type: fp4}\n"),
      (Lines{"run.yaml:4: encoder_tensor_model_parallel_size is not implemented yet; leave it out or give 0",
             "run.yaml:5: qlora_quant_type is not implemented yet; leave it out or give nf4"}));
}

TEST_F(RecipeFile, MapsInsideAGroupAreReadUnderTheirNames) {
  const auto recipe = read(least + length + "parallel_config: {recompute_config: {recompute: ~}}\n",
                           {"model_config.rotary_config={rotary_percent: 0.5, rotary_base: 100}",
                            "model_config.fa_config={pre_tokens: 65536}"});
  EXPECT_EQ(report.problems(), Lines{});
  EXPECT_EQ(recipe.model.options<model::GptOptions>()->rotary_percent, 0.5);
  EXPECT_EQ(recipe.model.options<model::GptOptions>()->rotary_base, 100);
}

TEST_F(RecipeFile, SwitchesOfOtherProgramsChooseWhatTheyMean) {
  const auto recipe =
      read(least + length, {"model_config.use_fused_rmsnorm=True", "model_config.use_rotary_position_embeddings=true"});
  EXPECT_EQ(report.problems(), Lines{});
  EXPECT_EQ(recipe.model.options<model::GptOptions>()->normalization, nn::Normalization::rms_norm);
  EXPECT_EQ(recipe.model.options<model::GptOptions>()->position_embedding_type, model::PositionEmbedding::rope);
}

options::OptionFacts fact_of(const options::Facts& all, const std::string& group, const std::string& key) {
  for (const auto& schema : all.at(group))
    for (const auto& option : schema.options)
      if (option.planned && option.name == key) return option;
  return {};
}

TEST(Planned, EachRowTakesWhatItListsAndNothingElse) {
  const auto all = all_facts({});
  for (const auto& row : planned_rows()) {
    const std::string group(row.group), key(row.name);
    const auto problems = [&](options::Value value) {
      options::Value tree;
      auto& one = tree.fields.emplace_back(options::Value::Field{group, {}}).value;
      tree.kind = one.kind = options::Value::Kind::group;
      value.origin = {"run.yaml", 1, "", 1};
      one.set(key, value);
      options::Report report;
      options::Group read(tree, group, report);
      planned_options().read(read);
      return report.findings();
    };
    for (const auto& taken : row.takes) {
      options::Value value;
      value.kind = taken.kind;
      value.scalar = taken.word;
      for (const auto item : taken.items) value.items.push_back(options::Value::of(std::string(item), {}));
      EXPECT_TRUE(problems(value).empty()) << key << value;
    }
    const auto other = problems(options::Value::of("12345", {}));
    ASSERT_EQ(other.size(), 1U) << key;
    EXPECT_EQ(other[0].option, group + "." + key);
    const auto facts = fact_of(all, group, key);
    const bool compatible = options::only_compatible(facts);
    EXPECT_EQ(other[0].message.find(key + (compatible ? " takes " : " is not implemented yet")), 0U);
    EXPECT_EQ(options::state_of_planned(facts).find("not implemented") == std::string::npos, compatible) << key;
    EXPECT_EQ(facts.doc, row.text);
    EXPECT_EQ(facts.type, row.type);
    EXPECT_EQ(facts.aliases.size(), row.aliases.size()) << key;
  }
  EXPECT_GT(planned_rows().size(), 150U);
}

TEST(Contract, EveryKeyOfItIsAnOptionOrAPlannedOne) {
  std::set<std::string> known;
  for (const auto& [group, schemas] : all_facts({}))
    for (const auto& schema : schemas)
      for (const auto& option : schema.options) {
        known.insert(group + "." + option.name);
        for (const auto& alias : option.aliases) known.insert(group + "." + alias.name);
      }
  std::ifstream file(TESTS_DATA "/contract_keys.txt");
  int count = 0;
  for (std::string key; std::getline(file, key);) {
    if (key.empty() || key[0] == '#') continue;
    EXPECT_TRUE(known.count(key)) << key;
    ++count;
  }
  EXPECT_GT(count, 230);
}

TEST_F(RecipeFile, WhatACommandLineHasWrongCarriesItsName) {
  EXPECT_EQ(problems(least + length, {"trainig_config.seed=1"}),
            Lines{"--set trainig_config.seed: no group 'trainig_config'; did you mean 'training_config'?"});
  EXPECT_EQ(problems(least, {"training_config.seed=1"}),
            Lines{"run.yaml: training_config.training_iters is missing; give it in steps, or "
                  "dataset_config.train_samples, or epochs"});
}

TEST_F(RecipeFile, TheNestedFormIsRecognised) {
  EXPECT_EQ(problems(least + length + "accelerate_config: {}\n"),
            Lines{"run.yaml:4: 'accelerate_config' is a group of a nested recipe, in a file with groups of ours; write "
                  "training_config, "
                  "model_config, parallel_config, optimizer_config, dataset_config"});
}

// Rules between options: each is broken here once.

TEST_F(RecipeFile, BatchSizesMustDivideAndAgree) {
  const auto batch = [&](const std::string& options) {
    return problems(least + length, {"dataset_config=" + options});
  };
  EXPECT_EQ(
      batch("{batch_size: 4, global_batch_size: 6}"),
      Lines{"--set dataset_config: global_batch_size is 6, which batch_size 4 does not divide; make it a multiple"});
  EXPECT_EQ(batch("{batch_size: 4, global_batch_size: 8, micro_batch_num: 3}"),
            Lines{"--set dataset_config: micro_batch_num is 3, but global_batch_size 8 in micro-batches of 4 makes 2; "
                  "give one of "
                  "micro_batch_num and global_batch_size"});
  EXPECT_EQ(batch("{batch_size: 4, global_batch_size: 8, micro_batch_num: 2}"), Lines{});
  EXPECT_EQ(batch("{batch_size: 0, global_batch_size: 8}"),
            Lines{"--set dataset_config: batch_size must be > 0, is 0; give a value > 0"});
  EXPECT_EQ(read(least + length, {"dataset_config={batch_size: 4, global_batch_size: 8}"}).batch.micro_batches(), 2);
  EXPECT_EQ(read(least + length, {"dataset_config={micro_batch_size: 4, micro_batch_num: 3}"}).batch.samples_per_step(),
            12);
}

TEST_F(RecipeFile, LengthsAreInStepsOrInSamples) {
  const auto with = [&](const Lines& sets) {
    std::string all;
    for (const auto& line : problems(least, sets)) all += line + "\n";
    return all;
  };
  const std::string steps = "training_config.training_iters=20", samples = "dataset_config.train_samples=40";
  EXPECT_EQ(with({steps}), "");
  EXPECT_EQ(with({samples, "optimizer_config.lr_warmup_samples=4"}), "");
  EXPECT_EQ(with({"training_config.epochs=2"}), "");
  EXPECT_NE(with({steps, samples}).find("the length of the run: train_samples 40, training_iters 20; keep one"),
            std::string::npos);
  EXPECT_NE(
      with({samples, "optimizer_config.lr_warmup_iters=4"})
          .find(
              "lr_warmup_iters is 4, in steps, but the length of the run is given in samples; give lr_warmup_samples"),
      std::string::npos);
  EXPECT_NE(with({steps, "optimizer_config.lr_decay_samples=4"}).find("give lr_warmup_iters and"), std::string::npos);
  EXPECT_NE(with({steps, "dataset_config.rampup_batch_size=[2, 2, 8]"}).find("give dataset_config.train_samples"),
            std::string::npos);
}

TEST_F(RecipeFile, ABatchThatGrowsMustMeetItsFullSize) {
  const auto with = [&](const std::string& ramp) {
    return problems(least,
                    {"dataset_config={train_samples: 40, global_batch_size: 8, rampup_batch_size: " + ramp + "}"});
  };
  EXPECT_EQ(with("[2, 2, 8]"), Lines{});
  EXPECT_EQ(
      with("[2, 4, 8]"),
      Lines{"--set dataset_config: rampup_batch_size: the increase from 2 to 8 is not divisible by the increment 4; "
            "give an increment that divides it"});
  EXPECT_EQ(with("[8, 4, 8]"),
            Lines{"--set dataset_config: rampup_batch_size begins with the full size 8; leave it out"});
  EXPECT_EQ(with("[2, 2]"),
            Lines{"--set dataset_config: rampup_batch_size has 2 numbers; give three: [first size, increment, samples "
                  "until the full size]"});
}

TEST_F(RecipeFile, ABatchThatGrowsIsDivisibleIntoMicroBatchesOfOneRankAtLeast) {
  const auto with = [&](const std::string& first, const std::string& more = "") {
    return problems(least, {"dataset_config={train_samples: 40, batch_size: 2, global_batch_size: 8, "
                            "rampup_batch_size: [" +
                            first + ", 1, 8]" + more + "}"});
  };
  EXPECT_EQ(with("1"),
            Lines{"--set dataset_config: after 0 samples the global batch is 1, less than batch_size 2; begin "
                  "rampup_batch_size higher, or lower batch_size"});
  EXPECT_EQ(with("2").size(), 1U);  // the second size is 3
  EXPECT_EQ(with("2", ", decrease_batch_size_if_needed: true"), Lines{});
}

TEST_F(RecipeFile, NegativeNumbersOfEvaluationsAndOfClippingMeanNoneAsInMegatron) {
  EXPECT_EQ(problems(least, {"training_config.training_iters=2", "training_config.eval_iters=-1",
                             "optimizer_config.clip_grad=-1"}),
            Lines{});
}

TEST_F(RecipeFile, BothWaysToResumeAScheduleAreRefused) {
  EXPECT_EQ(
      problems(least + length, {"optimizer_config={override_opt_param_scheduler: true, "
                                "use_checkpoint_opt_param_scheduler: true}"}),
      Lines{
          "--set optimizer_config: override_opt_param_scheduler and use_checkpoint_opt_param_scheduler are both true; "
          "keep one of the two"});
}

TEST_F(RecipeFile, RulesOfTheModelAreCheckedWithTheRecipe) {
  EXPECT_EQ(problems(least + length, {"model_config.num_attention_heads=5"}),
            Lines{"--set model_config.num_attention_heads: num_attention_heads is 5, which does not divide hidden_size "
                  "32; change one, or "
                  "give kv_channels"});
  const auto longer = problems(least + length, {"model_config.max_position_embeddings=8"});
  ASSERT_EQ(longer.size(), 1u);
  EXPECT_EQ(longer[0].rfind(
                "--set model_config.max_position_embeddings: max_position_embeddings is 8, but seq_length is 16", 0),
            0u)
      << longer[0];
}

TEST_F(RecipeFile, RulesOfSchedulesAreCheckedWithTheRecipe) {
  EXPECT_EQ(problems(least + length, {"optimizer_config.lr_warmup_iters=20"}).size(), 1u);
  EXPECT_EQ(problems(least + length, {"optimizer_config.min_lr=1"}),
            Lines{"--set optimizer_config.min_lr: min_lr 1 is above learning_rate 0.001; lower it"});
  EXPECT_EQ(problems(least + length, {"optimizer_config.weight_decay_incr_style=linear"}).size(), 1u);
}

TEST_F(RecipeFile, ARuleIsSilentAboutAnOptionThatIsWrongAnyway) {
  EXPECT_EQ(problems(least + length, {"model_config.hidden_size=many"}).size(), 1u);
  EXPECT_EQ(problems(least + length, {"optimizer_config.min_lr=1", "optimizer_config.learning_rate=fast"}).size(), 1u);
  EXPECT_EQ(problems("dataset_config: [\n").size(), 1u);
}

// What becomes of a recipe.

TEST_F(RecipeFile, ResolvedOptionsReadBackToThemselves) {
  const auto once = read_recipe(CONFIGS_DIR "/tiny.yaml",
                                {"optimizer_config.eps=1e-6", "training_config.prefix=a${X:-b}"}, registries, report);
  EXPECT_EQ(report.problems(), Lines{});
  const auto dump = resolved_yaml(once);
  EXPECT_NE(dump.find("  eps: 1e-06  # --set optimizer_config.eps\n"), std::string::npos) << dump;
  EXPECT_NE(dump.find("  lr_warmup_init: 0  # default\n"), std::string::npos) << dump;
  const auto again = read(dump);
  EXPECT_EQ(report.problems(), Lines{});
  EXPECT_EQ(text(once.resolved), text(again.resolved));
  EXPECT_EQ(report.notes(), Lines{});
}

TEST_F(RecipeFile, EveryRecipeOfConfigsIsRead) {
  for (const auto& entry : std::filesystem::recursive_directory_iterator(CONFIGS_DIR)) {
    if (entry.is_directory()) continue;
    const auto tree = options::read_yaml(entry.path().string());
    if (!tree.find("model_config") || !tree.find("training_config")) continue;  // a base
    report = {};
    read_recipe(entry.path().string(), {}, registries, report);
    EXPECT_EQ(report.problems(), Lines{});
  }
}

TEST_F(RecipeFile, PatchesOfTheDataAreThoseOfTheVisionTower) {
  const auto told_with = [&](const std::string& option) {
    read(least + length, {"model_config={use_visual_encoder: true}", "vision_config={num_layers: 2}",
                          "dataset_config={dataset_type: mllm, dataset: a.json" + option + "}"});
    return joined(report.problems(), "\n");
  };
  EXPECT_EQ(told_with("").find("_size"), std::string::npos) << told_with("");
  for (const auto* option : {"patch_size", "temporal_patch_size", "spatial_merge_size"})
    EXPECT_NE(told_with(text(", ", option, ": 1")).find(text(option, " is 1 in dataset_config")), std::string::npos)
        << told_with(text(", ", option, ": 1"));
}

TEST_F(RecipeFile, FeaturesAreKeptOfAFrozenTowerOnOneStage) {
  const auto told_with = [&](const std::string& frozen, const std::string& layout) {
    read(least + length, {"model_config={use_visual_encoder: true, position_embedding_type: mrope, mrope_section: [1, "
                          "1, 0], num_layers: 2, hidden_size: 16, num_attention_heads: 4, vocab_size: 64}",
                          "vision_config={num_layers: 2, hidden_size: 16, num_attention_heads: 4, image_token_id: 3, "
                          "video_token_id: 4, feature_cache_path: kept}",
                          "training_config.frozen_parameters=[" + frozen + "]",
                          "parallel_config={pipeline_model_parallel_size: 2, num_layer_list: " + layout + "}"});
    return joined(report.problems(), "\n");
  };
  EXPECT_EQ(told_with("'vision_.*'", "[2, 2]"), "");
  EXPECT_EQ(told_with("'vision_.*'", "[3, 1]"), "");
  EXPECT_NE(told_with("'vision_.*'", "[1, 3]").find("the first stage has only 1 of the vision tower's 2 layers"),
            std::string::npos);
  for (const auto* frozen : {"", R"('vision_model\..*')", R"('vision_projection\..*')"})
    EXPECT_NE(told_with(frozen, "[2, 2]").find("is trained: features of images change with it"), std::string::npos)
        << told_with(frozen, "[2, 2]");
}

TEST_F(RecipeFile, FiguresFollowFromTheRecipe) {
  const auto f = figures(read(least + length, {"dataset_config={batch_size: 2, micro_batch_num: 3}"}));
  EXPECT_EQ(report.problems(), Lines{});
  // Embedding 64 rows and 16 places; a layer: two norms, QKV, output, 4 h and back, all with biases; a last norm.
  const std::int64_t h = 32, layer = 4 * h + (3 * h * h + 3 * h) + (h * h + h) + (4 * h * h + 4 * h) + (4 * h * h + h);
  EXPECT_EQ(f.parameters, 64 * h + 16 * h + 2 * layer + 2 * h);
  std::int64_t sum = 0;
  for (const auto& [part, count] : f.parameters_by_part) sum += count;
  EXPECT_EQ(sum, f.parameters);
  EXPECT_EQ(f.weight_bytes, 4 * f.parameters);
  EXPECT_GE(f.state_bytes, 4 * 4 * f.parameters);  // weights, gradients, two moments, in whole runs of 64
  EXPECT_EQ(f.samples_per_step, 6);
  EXPECT_EQ(f.tokens_per_step, 96);
  EXPECT_EQ(f.tokens, 20 * 96);
}

TEST_F(RecipeFile, AFileMistakeIsFoundBeforeAnythingRuns) {
  const auto gpt = read(least + length, {"dataset_config={dataset_type: gpt, data_path: absent/text}"});
  EXPECT_EQ(report.problems(), Lines{});
  EXPECT_THROW(figures(gpt), ConfigError);
}

TEST(Docs, NoOptionIsDeclaredTwiceForOneChoice) {
  for (const auto& [group, schemas] : all_facts({})) {
    std::set<std::string> own;
    for (const auto& schema : schemas)
      for (const auto& option : schema.options)
        if (schema.key.empty()) {
          EXPECT_TRUE(own.insert(option.name).second) << group << "." << option.name;
          for (const auto& alias : option.aliases)
            EXPECT_TRUE(own.insert(alias.name).second) << group << "." << alias.name;
        }
    for (const auto& schema : schemas)
      for (const auto& option : schema.options)
        EXPECT_TRUE(schema.key.empty() || !own.count(option.name))
            << group << "." << option.name << " of " << schema.type;
  }
}

TEST(Docs, AnOptionReplacesOptionsOfItsOwnSchema) {
  int count = 0;
  for (const auto& [group, schemas] : all_facts({}))
    for (const auto& schema : schemas) {
      std::set<std::string> names;
      for (const auto& option : schema.options) names.insert(option.name);
      for (const auto& option : schema.options)
        for (const auto& other : option.replaces) {
          EXPECT_TRUE(names.count(other)) << group << "." << option.name << " replaces " << other;
          ++count;
        }
    }
  EXPECT_GT(count, 20);
}

TEST(Docs, EveryOptionSaysWhatItMeans) {
  for (const auto& [group, schemas] : all_facts({}))
    for (const auto& schema : schemas)
      for (const auto& option : schema.options) {
        EXPECT_FALSE(option.doc.empty()) << group << "." << option.name;
        EXPECT_EQ(option.doc.find('|'), std::string::npos) << group << "." << option.name << " would break its table";
      }
}

TEST(Docs, TheJsonSchemaHasEveryKey) {
  const auto schema = options::json_schema(all_facts({}));
  for (const auto* word :
       {"\"fa_config\"", "\"pre_tokens\"", "\"adam_beta1\"", "\"exclusiveMaximum\": 1", "\"lr_decay_style\""})
    EXPECT_NE(schema.find(word), std::string::npos) << word;
}

}  // namespace
}  // namespace tessera::recipe
