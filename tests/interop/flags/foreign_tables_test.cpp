#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <set>

#include "framework/interop/flags/flag_table.h"
#include "framework/interop/flags/launcher_table.h"
#include "framework/model/gpt_options.h"
#include "framework/options/yaml.h"
#include "framework/recipe/recipe.h"
#include "tests/interop/flags/tables.h"
#include "tests/sanitized.h"
#include "tests/tree.h"

// The tables of mappings/flags/ are held to the options that they lead to, and to the flags that scripts use.

namespace tessera {
namespace {

const Lines names = {"mindspeed-llm",      "mindspeed-core-ms", "deepspeed", "megatron-llm",
                     "pai-megatron-patch", "llama-factory",     "torchtune", "mindspeed-mm"};

/// Rows that are not the base's, which has tests of its own.
std::vector<flags::FlagRow> own_rows(const flags::FlagTable& table) {
  const auto base = flags::FlagTable::named(flags::FlagTable::usual, options::Mappings());
  std::vector<flags::FlagRow> own;
  for (const auto& row : table.rows()) {
    const auto* there = base.find(row.flag);
    if (!there || there->to != row.to || there->words != row.words) own.push_back(row);
  }
  return own;
}

TEST(ForeignTables, EveryRowLeadsToOptionsThatExist) {
  const auto known = every_key();
  for (const auto& name : names) {
    const auto table = flags::FlagTable::named(name, options::Mappings());
    for (const auto& row : table.rows()) {
      EXPECT_TRUE(row.to.empty() || known.count(row.option())) << name << " " << row.flag << " to " << row.to;
      for (const auto* implied : {&row.also, &row.always})
        for (const auto& [option, value] : *implied)
          EXPECT_TRUE(known.count(option.substr(0, option.find('[')))) << name << " " << row.flag << " to " << option;
      const bool told = row.kind != flags::FlagRow::Kind::ignored && row.kind != flags::FlagRow::Kind::refused;
      EXPECT_TRUE(told || row.why.size() > 10) << name << " " << row.flag << " gives no reason";
      for (const auto& [word, settings] : row.settings)
        for (const auto& [option, value] : settings) EXPECT_TRUE(known.count(option)) << name << " " << row.flag;
      EXPECT_TRUE(!told || !row.to.empty() || !row.also.empty() || !row.always.empty() || !row.settings.empty() ||
                  !row.rule.empty() || !row.keys.empty() || !row.only.empty() || !row.also_to.empty())
          << name << " " << row.flag;
    }
  }
}

/// A checkpoint says in its arguments what the flags said: what changes the model there must not be lost.
TEST(ForeignTables, EveryFlagOfTheModelIsAnArgumentWithARowOrNamedAsWithoutEffect) {
  const auto table = options::Mappings().table("arguments/megatron.yaml");
  const auto *config = table.find("config"), *harmless = table.find("without_effect");
  ASSERT_TRUE(config != nullptr && harmless != nullptr);
  const auto is_harmless = [&](const std::string& name) {
    for (const auto& kind : harmless->fields)
      for (const auto& item : kind.value.items) {
        const auto& word = item.scalar;
        const bool begins = word.ends_with('*') && name.starts_with(word.substr(0, word.size() - 1));
        if (begins || word == name) return true;
      }
    return false;
  };
  int count = 0;
  for (const std::string name : {flags::FlagTable::usual, "megatron@main", "mindspeed-llm"}) {
    const auto all = flags::FlagTable::named(name, options::Mappings());
    for (const auto& row : all.rows()) {
      const bool of_model = row.to.starts_with("model_config.") || row.to.starts_with("moe_config.");
      const bool refused = row.kind == flags::FlagRow::Kind::refused && !row.why.starts_with("Megatron-LM no longer");
      if (!of_model && !refused) continue;
      ++count;
      EXPECT_TRUE(config->find(row.dest) != nullptr || is_harmless(row.dest))
          << name << " " << row.flag << ": mappings/arguments/megatron.yaml does not have " << row.dest;
    }
  }
  EXPECT_GT(count, 400);
  const auto known = every_key();
  const auto expect_known = [&](const std::string& option) {
    EXPECT_TRUE(known.count(option.substr(0, option.find('[')))) << "mappings/arguments/megatron.yaml: to " << option;
  };
  for (const auto& [argument, row] : config->fields) {
    const auto* to = row.find("to");
    if (to == nullptr) continue;
    if (to->kind == options::Value::Kind::scalar) expect_known(to->scalar);
    for (const auto& branch : to->fields) expect_known(branch.value.scalar);
  }
}

// A table whose model or data are those of a folder or file has no whole run without it.
TEST(ForeignTables, TheirDefaultsPassOurLimits) {
  for (const auto& name : names) {
    if (name == "llama-factory" || name == "torchtune" || name == "mindspeed-mm") continue;
    EXPECT_EQ(complaints(flags::FlagTable::named(name, options::Mappings()), {}), Lines{}) << name;
  }
}

TEST(ForeignTables, ProgramsThatDividePositionsAreToldApart) {
  const auto read = [](const std::string& program, const std::string& factor) {
    options::Report report;
    const auto table = flags::FlagTable::named(program, options::Mappings());
    auto converted = table.convert(one_flag("--rotary-seq-len-interpolation-factor", factor), facts(), report);
    return std::pair(converted.flags.at(0).status,
                     text_at(converted.recipe, "model_config.rotary_seq_len_interpolation_factor"));
  };
  using Status = flags::FlagStatus;
  EXPECT_EQ(read("pai-megatron-patch", "4"), std::pair(Status::mapped, std::string("4")));
  EXPECT_EQ(read("mindspeed-llm", "1"), std::pair(Status::mapped, std::string("nothing")));
  EXPECT_EQ(read("mindspeed-llm", "4"), std::pair(Status::refused, std::string("nothing")));
  EXPECT_EQ(read("megatron", "4"), std::pair(Status::ignored, std::string("nothing")));
}

TEST(ForeignTables, AMissingLearningRateIsNoted) {
  for (const auto* program : {"megatron", "mindspeed-llm", "pai-megatron-patch"}) {
    const auto table = flags::FlagTable::named(program, options::Mappings());
    options::Report report;
    (void)table.convert(without(small_run(), "--lr"), facts(), report);
    EXPECT_EQ(report.notes(),
              Lines{"--lr not given: Megatron-LM stops without it; the learning rate is Tessera's default"});
    options::Report other;
    (void)table.convert(small_run(), facts(), other);
    EXPECT_EQ(other.notes(), Lines{});
  }
}

/// A flag with a word either passes, or it is said to be planned.
TEST(ForeignTables, TheirWordsPassOurLimitsOrArePlanned) {
  int number = 0;
  for (const auto& name : names) {
    const auto table = flags::FlagTable::named(name, options::Mappings());
    for (const auto& row : own_rows(table))
      for (const auto& [theirs, ours] : row.words) {
        if (number++ % part_of_inputs != 0) continue;
        options::Report report;
        const auto converted = table.convert(one_flag(row.flag, theirs), facts(), report);
        if (converted.flags.at(0).status != flags::FlagStatus::mapped) {
          EXPECT_EQ(converted.flags.at(0).status, flags::FlagStatus::planned)
              << name << " " << row.flag << " " << theirs;
          continue;
        }
        for (const auto& line : complaints_of(table, one_flag(row.flag, theirs)))
          EXPECT_EQ(line.find("takes "), std::string::npos) << name << " " << row.flag << " " << theirs << ": " << line;
      }
  }
}

/// What a bare flag stands for is a value of its option.
TEST(ForeignTables, WhatABareFlagStandsForIsAValueOfItsOption) {
  int number = 0;
  for (const auto& name : names) {
    const auto table = flags::FlagTable::named(name, options::Mappings());
    for (const auto& row : own_rows(table)) {
      if (row.takes != flags::FlagRow::Takes::none || row.kind == flags::FlagRow::Kind::refused ||
          row.kind == flags::FlagRow::Kind::ignored)
        continue;
      if (number++ % part_of_inputs != 0) continue;
      for (const auto& line : complaints_of(table, one_flag(row.flag)))
        EXPECT_EQ(line.find("takes "), std::string::npos) << name << " " << row.flag << ": " << line;
    }
  }
}

TEST(ForeignTables, EveryFlagThatScriptsUseHasARow) {
  std::ifstream file(TESTS_DATA "/flags_in_scripts.txt");
  std::string table_name, flag;
  std::size_t count = 0;
  flags::FlagTable table = flags::FlagTable::named(names[0], options::Mappings());
  while (file >> table_name >> flag) {
    if (table_name != table.name()) table = flags::FlagTable::named(table_name, options::Mappings());
    EXPECT_NE(table.find(flag), nullptr) << table_name << " " << flag;
    ++count;
  }
  EXPECT_GT(count, 1000u);
}

/// "reader flag" lines of a file, "# ..." lines aside.
std::vector<std::pair<std::string, std::string>> flags_of_guides() {
  std::ifstream file(TESTS_DATA "/flags_in_guides.txt");
  std::vector<std::pair<std::string, std::string>> all;
  for (std::string line; std::getline(file, line);)
    if (!line.empty() && line[0] != '#')
      all.emplace_back(line.substr(0, line.find(' ')), line.substr(line.find(' ') + 1));
  return all;
}

TEST(ForeignTables, EveryFlagOfTheGuidesHasARowOrIsALaunchersOwn) {
  const std::set<std::string> launchers = {"torchrun", "ttprun", "msrun"};
  const flags::LauncherTable launcher_table{options::Mappings()};
  std::map<std::string, flags::FlagTable> tables;
  std::size_t count = 0;
  for (const auto& [reader, flag] : flags_of_guides()) {
    if (reader == "preprocess") continue;  // tests/cli
    ++count;
    if (launchers.count(reader)) {
      shell::StartedProgram run;
      run.words = {reader, flag, "1", "pretrain_gpt.py", "--lr", "1"};
      options::Report report;
      const auto launch = flags::launch_of(run, {"x.sh"}, launcher_table, report);
      EXPECT_EQ(launch.launcher, reader);
      ASSERT_EQ(launch.options.size(), 1u) << reader << " " << flag;
      EXPECT_EQ(launch.options[0].flag, flag);
      EXPECT_EQ(launch.program, "pretrain_gpt.py") << reader << " " << flag;
      continue;
    }
    const auto table = tables.try_emplace(reader, flags::FlagTable::named(reader, options::Mappings())).first;
    EXPECT_NE(table->second.find(flag), nullptr) << reader << " " << flag;
  }
  EXPECT_GT(count, 90u);
}

TEST(ForeignTables, ActivationCheckpointsOfOldReleasesRecomputeEveryLayer) {
  for (const std::string name : {"megatron", "deepspeed", "mindspeed-llm"}) {
    const auto table = flags::FlagTable::named(name, options::Mappings());
    options::Report report;
    const auto recipe = table.convert({"--checkpoint-activations", "--DDP-impl", "local"}, facts(), report);
    EXPECT_EQ(value_at(recipe, "model_config.recompute_granularity").scalar, "full") << name;
    EXPECT_EQ(value_at(recipe, "model_config.recompute_method").scalar, "uniform") << name;
    EXPECT_EQ(value_at(recipe, "model_config.recompute_num_layers").scalar, "1") << name;
    const auto cut = table.convert({"--checkpoint-activations", "--checkpoint-num-layers", "2"}, facts(), report);
    EXPECT_EQ(value_at(cut, "model_config.recompute_num_layers").scalar, "2") << name;
    const auto block = table.convert(
        {"--activations-checkpoint-method", "block", "--activations-checkpoint-num-layers", "3"}, facts(), report);
    EXPECT_EQ(value_at(block, "model_config.recompute_granularity").scalar, "full") << name;
    EXPECT_EQ(value_at(block, "model_config.recompute_method").scalar, "block") << name;
    EXPECT_TRUE(report.good()) << name;
  }
}

TEST(ForeignTables, AFlagOfTheBaseIsSpelledAsTheProgramSpellsIt) {
  const auto table = flags::FlagTable::named("megatron-llm", options::Mappings());
  options::Report report;
  const auto recipe =
      table.convert({"--num_layers", "4", "--no_bias_gelu_fusion", "--num_attention_heads_kv", "2"}, facts(), report);
  EXPECT_EQ(value_at(recipe, "model_config.num_layers").scalar, "4");
  EXPECT_EQ(value_at(recipe, "model_config.hidden_act").scalar, "gelu_erf");
  EXPECT_EQ(value_at(recipe, "model_config.group_query_attention").scalar, "true");
  EXPECT_EQ(table.find("--num-layers"), nullptr);
}

TEST(ForeignTables, SwitchesThatChangeOnlyHowItIsComputedAreIgnoredWithTheReason) {
  const auto table = flags::FlagTable::named("mindspeed-llm", options::Mappings());
  options::Report report;
  const auto converted = table.convert(
      flags::flags_of({"--use-fused-rmsnorm", "--swap-attention", "--moe-fb-overlap", "--sequence-parallel"}), facts(),
      report);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(converted.flags[i].status, flags::FlagStatus::ignored);
  EXPECT_EQ(converted.flags.at(3).status, flags::FlagStatus::mapped);
  EXPECT_TRUE(report.good());
}

TEST(ForeignTables, WhatIsNotBuiltIsPlannedUnlessItChangesNothing) {
  const auto table = flags::FlagTable::named("mindspeed-llm", options::Mappings());
  const auto status = [&](const Lines& words) {
    options::Report report;
    return flags::word_of(table.convert(flags::flags_of(words), facts(), report).flags.at(0).status);
  };
  EXPECT_EQ(status({"--stage", "dpo"}), "mapped");
  EXPECT_EQ(status({"--stage", "sft"}), "mapped");
  EXPECT_EQ(status({"--lora-target-modules", "linear_qkv", "linear_proj"}), "mapped");
  EXPECT_EQ(status({"--embedding-multiplier-scale", "1.0"}), "mapped");
  EXPECT_EQ(status({"--embedding-multiplier-scale", "12"}), "mapped");
  EXPECT_EQ(status({"--tokenizer-type", "PretrainedFromHF"}), "mapped");
  EXPECT_EQ(status({"--optimizer-selection", "fused_torch_adamw"}), "mapped");
  EXPECT_EQ(status({"--optimizer-selection", "fused_ema_adamw"}), "planned");
  EXPECT_EQ(status({"--auto-settings"}), "refused");
}

TEST(ForeignTables, ARewardModelOfMindSpeedLlmHasAScoreHead) {
  options::Report report;
  const auto run = flags::FlagTable::named("mindspeed-llm", options::Mappings())
                       .convert(flags::flags_of({"--stage", "orm", "--is-pairwise-dataset"}), facts(), report)
                       .recipe;
  EXPECT_EQ(text(*run.at("training_config.stage")), "rm");
  EXPECT_EQ(text(*run.at("model_config.score_head")), "true");
  EXPECT_EQ(text(*run.at("dataset_config.is_pairwise_dataset")), "true");
}

/// Of every table: no word of a tokenizer type is without a type of ours or a reason.
TEST(ForeignTables, EveryTokenizerTypeIsOneOfOursOrRefusedByName) {
  const std::set<std::string> ours = {"GPT2BPETokenizer",     "NullTokenizer",   "BertWordPieceLowerCase",
                                      "BertWordPieceCase",    "TikTokenizer",    "GPTSentencePieceTokenizer",
                                      "HuggingFaceTokenizer", "Llama2Tokenizer", "SentencePieceTokenizer"};
  int rows = 0;
  for (const auto* name : {"megatron@core_v0.12.1", "megatron@main", "mindspeed-llm", "mindspeed-core-ms",
                           "pai-megatron-patch", "deepspeed"}) {
    const auto table = flags::FlagTable::named(name, options::Mappings());
    for (const auto* flag : {"--tokenizer-type", "--patch-tokenizer-type"}) {
      const auto* row = table.find(flag);
      if (!row) continue;
      ++rows;
      for (const auto& [theirs, word] : row->words) EXPECT_TRUE(ours.count(word)) << name << " " << theirs;
      for (const auto& [theirs, why] : row->refused_words) EXPECT_FALSE(why.empty()) << name << " " << theirs;
    }
  }
  EXPECT_EQ(rows, 7);
}

TEST(ForeignTables, TheTokenizerOfPaiIsInTheFolderOfItsCheckpoint) {
  const auto recipe_of = [](const Lines& words) {
    options::Report report;
    return flags::FlagTable::named("pai-megatron-patch", options::Mappings())
        .convert(flags::flags_of(words), facts(), report)
        .recipe;
  };
  const auto recipe = recipe_of({"--load", "hf/qwen", "--patch-tokenizer-type", "Qwen3Tokenizer"});
  EXPECT_EQ(recipe.at("dataset_config.tokenizer_type")->scalar, "HuggingFaceTokenizer");
  EXPECT_EQ(recipe.at("dataset_config.tokenizer_model")->scalar, "hf/qwen");
  EXPECT_EQ(recipe.at("training_config.load_checkpoint")->scalar, "hf/qwen");
  const auto own = recipe_of({"--load", "ckpt", "--tokenizer-type", "Llama2Tokenizer", "--tokenizer-model", "x.model"});
  EXPECT_EQ(own.at("dataset_config.tokenizer_model")->scalar, "x.model");
  const auto other = recipe_of({"--load", "ckpt", "--tokenizer-type", "NullTokenizer", "--vocab-size", "9"});
  EXPECT_EQ(other.at("dataset_config.tokenizer_model"), nullptr);
}

/// The flags of attention of its scripts for DeepSeek-V2-Lite, -V3 and Kimi-K2, whose betas are equal.
TEST(ForeignTables, YarnOfLatentAttentionIsMindSpeedLlms) {
  struct Script {
    const char *factor, *mscale, *beta_fast;
  };
  for (const auto& s : {Script{"40", "0.707", "32"}, Script{"40", "1.0", "32"}, Script{"32", "1.0", "1"}}) {
    const Lines words = {"--position-embedding-type",
                         "rope",
                         "--multi-latent-attention",
                         "--qk-layernorm",
                         "--qk-pos-emb-head-dim",
                         "64",
                         "--qk-head-dim",
                         "128",
                         "--kv-lora-rank",
                         "512",
                         "--v-head-dim",
                         "128",
                         "--beta-fast",
                         s.beta_fast,
                         "--beta-slow",
                         "1",
                         "--rope-scaling-type",
                         "yarn",
                         "--rope-scaling-factor",
                         s.factor,
                         "--rope-scaling-mscale",
                         s.mscale,
                         "--rope-scaling-mscale-all-dim",
                         s.mscale,
                         "--rope-scaling-original-max-position-embeddings",
                         "4096",
                         "--num-layers",
                         "2",
                         "--hidden-size",
                         "64",
                         "--num-attention-heads",
                         "4",
                         "--max-position-embeddings",
                         "163840",
                         "--spec",
                         "mindspeed_llm.tasks.models.spec.deepseek_spec",
                         "layer_spec"};
    const auto table = flags::FlagTable::named("mindspeed-llm", options::Mappings());
    EXPECT_EQ(complaints(table, words), Lines{});
    options::Report report;
    const auto converted = table.convert(flags::flags_of(words), facts(), report);
    for (const auto& flag : converted.flags) EXPECT_EQ(flag.status, flags::FlagStatus::mapped) << flag.given.flag;
    const auto recipe = recipe::read_recipe(converted.recipe, {}, report);
    const auto* model = recipe.model.options<model::GptOptions>();
    ASSERT_NE(model, nullptr);
    const double growth = 0.1 * std::strtod(s.mscale, nullptr) * std::log(std::strtod(s.factor, nullptr)) + 1;
    EXPECT_NEAR(model->latent_scale(), growth * growth / std::sqrt(192.0), 1e-12);
    const auto yarn = model->rotary_scaling(163840);
    EXPECT_EQ(yarn.factor, std::strtod(s.factor, nullptr));
    EXPECT_EQ(yarn.original, 4096);
    EXPECT_EQ(yarn.beta_fast, std::strtod(s.beta_fast, nullptr));
    EXPECT_EQ(yarn.attention_factor, 1);
  }
}

}  // namespace
}  // namespace tessera
