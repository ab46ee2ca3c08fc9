#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <set>

#include "framework/convert/flag_table.h"
#include "framework/options/yaml.h"
#include "framework/recipe/recipe.h"

// The tables of mappings/flags/ are held to the options that they lead to, and to the flags that scripts use.

namespace tessera {
namespace {

using Lines = std::vector<std::string>;

const Lines names = {"mindspeed-llm", "mindspeed-core-ms", "deepspeed", "megatron-llm", "pai-megatron-patch"};

const Facts& facts() {
  static const Facts all = all_facts({});
  return all;
}

std::set<std::string> every_key() {
  std::set<std::string> known;
  for (const auto& [group, schemas] : facts())
    for (const auto& schema : schemas)
      for (const auto& option : schema.options) known.insert(group + "." + option.name);
  return known;
}

Lines complaints(const FlagTable& table, const Lines& argv) {
  Report report;
  read_recipe(table.convert(argv, facts(), report), {}, report);
  Lines all;
  for (const auto& finding : report.findings())
    if (finding.message.find("missing") == std::string::npos) all.push_back(text_of(finding));
  return all;
}

/// Rows that are not the base's, which has tests of its own.
std::vector<FlagRow> own_rows(const FlagTable& table) {
  const auto base = FlagTable::named(FlagTable::usual, Mappings());
  std::vector<FlagRow> own;
  for (const auto& row : table.rows()) {
    const auto* there = base.find(row.flag);
    if (!there || there->to != row.to || there->words != row.words) own.push_back(row);
  }
  return own;
}

TEST(ForeignTables, EveryRowLeadsToOptionsThatExist) {
  const auto known = every_key();
  for (const auto& name : names) {
    const auto table = FlagTable::named(name, Mappings());
    for (const auto& row : table.rows()) {
      EXPECT_TRUE(row.to.empty() || known.count(row.option())) << name << " " << row.flag << " to " << row.to;
      for (const auto* implied : {&row.also, &row.always})
        for (const auto& [option, value] : *implied)
          EXPECT_TRUE(known.count(option.substr(0, option.find('[')))) << name << " " << row.flag << " to " << option;
      const bool told = row.kind != FlagRow::Kind::ignored && row.kind != FlagRow::Kind::refused;
      EXPECT_TRUE(told || row.why.size() > 10) << name << " " << row.flag << " gives no reason";
      EXPECT_TRUE(!told || !row.to.empty() || !row.also.empty() || !row.always.empty()) << name << " " << row.flag;
    }
  }
}

TEST(ForeignTables, TheirDefaultsPassOurLimits) {
  for (const auto& name : names) EXPECT_EQ(complaints(FlagTable::named(name, Mappings()), {}), Lines{}) << name;
}

/// A flag with a word either passes, or it is said to be planned.
TEST(ForeignTables, TheirWordsPassOurLimitsOrArePlanned) {
  for (const auto& name : names) {
    const auto table = FlagTable::named(name, Mappings());
    for (const auto& row : own_rows(table))
      for (const auto& [theirs, ours] : row.words) {
        Report report;
        const auto converted = table.convert(flags_of({row.flag, theirs}), facts(), report);
        if (converted.fates.at(0).fate != FlagFate::Fate::mapped) {
          EXPECT_EQ(converted.fates[0].fate, FlagFate::Fate::planned) << name << " " << row.flag << " " << theirs;
          continue;
        }
        for (const auto& line : complaints(table, {row.flag, theirs}))
          EXPECT_EQ(line.find("takes "), std::string::npos) << name << " " << row.flag << " " << theirs << ": " << line;
      }
  }
}

/// What a bare flag stands for is a value of its option.
TEST(ForeignTables, WhatABareFlagStandsForIsAValueOfItsOption) {
  for (const auto& name : names) {
    const auto table = FlagTable::named(name, Mappings());
    for (const auto& row : own_rows(table)) {
      if (row.takes != FlagRow::Takes::none || row.kind == FlagRow::Kind::refused || row.kind == FlagRow::Kind::ignored)
        continue;
      for (const auto& line : complaints(table, {row.flag}))
        EXPECT_EQ(line.find("takes "), std::string::npos) << name << " " << row.flag << ": " << line;
    }
  }
}

TEST(ForeignTables, EveryFlagThatScriptsUseHasARow) {
  std::ifstream file(TESTS_DATA "/flags_in_scripts.txt");
  std::string table_name, flag;
  std::size_t count = 0;
  FlagTable table = FlagTable::named(names[0], Mappings());
  while (file >> table_name >> flag) {
    if (table_name != table.name()) table = FlagTable::named(table_name, Mappings());
    EXPECT_NE(table.find(flag), nullptr) << table_name << " " << flag;
    ++count;
  }
  EXPECT_GT(count, 500u);
}

TEST(ForeignTables, AFlagOfTheBaseIsSpelledAsTheProgramSpellsIt) {
  const auto table = FlagTable::named("megatron-llm", Mappings());
  Report report;
  const auto recipe =
      table.convert({"--num_layers", "4", "--no_bias_gelu_fusion", "--num_attention_heads_kv", "2"}, facts(), report);
  EXPECT_EQ(recipe.at("model_config.num_layers")->scalar, "4");
  EXPECT_EQ(recipe.at("model_config.hidden_act")->scalar, "gelu_erf");
  EXPECT_EQ(recipe.at("model_config.group_query_attention")->scalar, "true");
  EXPECT_EQ(table.find("--num-layers"), nullptr);
}

TEST(ForeignTables, SwitchesThatChangeOnlyHowItIsComputedAreIgnoredWithTheReason) {
  const auto table = FlagTable::named("mindspeed-llm", Mappings());
  Report report;
  const auto converted =
      table.convert(flags_of({"--use-fused-rmsnorm", "--swap-attention", "--moe-fb-overlap", "--sequence-parallel"}),
                    facts(), report);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(converted.fates[i].fate, FlagFate::Fate::ignored);
  EXPECT_EQ(converted.fates[3].fate, FlagFate::Fate::mapped);
  EXPECT_TRUE(report.good());
}

TEST(ForeignTables, WhatIsNotBuiltIsPlannedUnlessItChangesNothing) {
  const auto table = FlagTable::named("mindspeed-llm", Mappings());
  const auto fate = [&](const Lines& words) {
    Report report;
    return word_of(table.convert(flags_of(words), facts(), report).fates[0].fate);
  };
  EXPECT_EQ(fate({"--stage", "dpo"}), "planned");
  EXPECT_EQ(fate({"--lora-target-modules", "linear_qkv", "linear_proj"}), "planned");
  EXPECT_EQ(fate({"--embedding-multiplier-scale", "1.0"}), "mapped");
  EXPECT_EQ(fate({"--embedding-multiplier-scale", "12"}), "planned");
  EXPECT_EQ(fate({"--tokenizer-type", "PretrainedFromHF"}), "planned");
  EXPECT_EQ(fate({"--optimizer-selection", "fused_torch_adamw"}), "mapped");
  EXPECT_EQ(fate({"--optimizer-selection", "fused_ema_adamw"}), "planned");
  EXPECT_EQ(fate({"--auto-settings"}), "refused");
}

}  // namespace
}  // namespace tessera
