// The tables of flags are held to the programs that they speak of, to the code, and to the page that is made of them.
// tests/data/flags has the facts of their parsers: every option string with the name of its argument, how many words it
// takes, its default and its choices.

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "framework/base/error.h"
#include "framework/interop/flags/flags_page.h"
#include "framework/options/yaml.h"
#include "framework/recipe/recipe.h"
#include "tests/interop/flags/tables.h"
#include "tests/sanitized.h"

namespace tessera {
namespace {

using LibraryJson = nlohmann::json;
using Kind = flags::FlagRow::Kind;

const Lines releases = {"megatron", "megatron_main"};

flags::FlagTable table_of(const std::string& release) {
  return flags::FlagTable::from(release + ".yaml", options::Mappings());
}

LibraryJson facts_of(const std::string& release) {
  std::ifstream file(TESTS_DATA "/flags/" + release + ".json");
  return LibraryJson::parse(file);
}

Lines tables() {
  Lines all;
  for (const auto& file : options::Mappings().names())
    if (file.rfind("flags/", 0) == 0) all.push_back(file.substr(6));
  return all;
}

/// A default of theirs as a recipe would write it.
std::string as_text(const LibraryJson& value) {
  if (value.is_null() || value.is_array()) return "";
  if (value.is_boolean()) return value.get<bool>() ? "true" : "false";
  return value.is_string() ? value.get<std::string>() : value.dump();
}

bool equal(const std::string& a, const std::string& b) {
  char *end_a = nullptr, *end_b = nullptr;
  const auto x = std::strtod(a.c_str(), &end_a), y = std::strtod(b.c_str(), &end_b);
  return a == b || (!a.empty() && !b.empty() && *end_a == 0 && *end_b == 0 && x == y);
}

std::string takes_of(const flags::FlagRow& row) {
  constexpr const char* words[] = {"none", "one", "optional", "many"};
  return words[static_cast<int>(row.takes)];
}

/// The default that a row's `absent` should be; nothing where the two cannot be compared.
std::optional<std::string> expected_absent(const flags::FlagRow& row, const LibraryJson& theirs) {
  const auto usual = theirs.at("default");
  if (row.to.empty() || usual.is_array()) return std::nullopt;
  if (row.kind == Kind::same) return as_text(usual);
  if (row.kind == Kind::fixed && usual.is_boolean() && (row.fixed == "true" || row.fixed == "false"))
    return row.fixed == "true" ? "false" : "true";
  if (row.kind != Kind::words || usual.is_null()) return std::nullopt;
  for (const auto& [word, ours] : row.words)
    if (word == as_text(usual)) return ours;
  return "a word for " + as_text(usual);
}

TEST(FlagsOfMegatron, EachHasARowThatReadsTheCommandLineAsTheirParserDoes) {
  for (const auto& release : releases) {
    const auto table = table_of(release);
    const auto theirs = facts_of(release);
    EXPECT_GE(theirs.size(), 456u);
    for (const auto& flag : theirs) {
      const auto name = flag.at("flag").get<std::string>();
      const auto* row = table.find(name);
      ASSERT_NE(row, nullptr) << release << " has no row for " << name;
      EXPECT_EQ(row->dest, flag.at("dest").get<std::string>()) << name << " of " << release;
      EXPECT_EQ(takes_of(*row), flag.at("takes").get<std::string>()) << name << " of " << release;
    }
  }
}

TEST(FlagsOfMegatron, OneThatIsNotGivenHasTheirDefault) {
  // What their program makes of the parser's default afterwards, the table has at once. Main weights are not rounded.
  const std::set<std::string> made_later = {"--add-qkv-bias", "--eval-interval", "--finetune",
                                            "--load-main-params-from-ckpt", "--window-size"};
  for (const auto& release : releases) {
    const auto table = table_of(release);
    for (const auto& flag : facts_of(release)) {
      const auto& row = *table.find(flag.at("flag").get<std::string>());
      const auto expected = expected_absent(row, flag);
      // Several flags of one default: it stands at one of them.
      const auto said = std::any_of(table.rows().begin(), table.rows().end(), [&](const auto& other) {
        return expected && other.to == row.to && equal(other.absent, *expected);
      });
      if (!expected || made_later.count(row.flag)) continue;
      if (!row.theirs.empty()) {
        EXPECT_EQ(row.theirs, as_text(flag.at("default"))) << release << " " << row.flag;
        EXPECT_NE(row.absent, *expected) << release << " " << row.flag;
        continue;
      }
      EXPECT_TRUE(said) << release << " " << row.flag << ": not given it is '" << row.absent << "', theirs is '"
                        << *expected << "'";
      EXPECT_TRUE(row.absent.empty() || equal(row.absent, *expected)) << release << " " << row.flag;
    }
  }
}

TEST(FlagsOfMegatron, AWordIsOneOfTheirsAndOneWithoutCounterpartIsKnown) {
  const std::map<std::string, std::set<std::string>> left_out = {
      {"--ckpt-format", {"zarr", "torch_dcp", "fsdp_dtensor"}},
      {"--non-persistent-ckpt-type", {"in_memory"}},
      {"--ckpt-convert-format", {"zarr"}},
      {"--dataloader-type", {"external"}},
      {"--optimizer", {"muon", "dist_muon", "soap", "adaptive_muon"}},
      {"--transformer-impl", {"inference_optimized"}}};
  for (const auto& release : releases) {
    const auto table = table_of(release);
    for (const auto& flag : facts_of(release)) {
      const auto& row = *table.find(flag.at("flag").get<std::string>());
      if (row.kind != Kind::words || !flag.contains("choices")) continue;
      auto rest = flag.at("choices").get<std::set<std::string>>();
      for (const auto& [word, ours] : row.words) {
        EXPECT_EQ(rest.count(word), 1u) << row.flag << " never has '" << word << "'";
        rest.erase(word);
      }
      for (const auto& [word, why] : row.refused_words) rest.erase(word);
      for (const auto& word : rest)
        EXPECT_TRUE(left_out.count(row.flag) && left_out.at(row.flag).count(word))
            << release << " " << row.flag << " has no word for '" << word << "'";
    }
  }
}

TEST(FlagsOfMegatron, WhatIsIgnoredSaysWhatShowsThatItMayBe) {
  const std::regex evidence(R"(.*\((docs/rules\.md#[a-z]+\d+|docs/\w+\.md|[\w/]+\.py).*\))");
  for (const auto& release : releases) {
    const auto table = table_of(release);
    for (const auto& row : table.rows())
      EXPECT_TRUE(row.kind != Kind::ignored || std::regex_match(row.why, evidence)) << row.flag << ": " << row.why;
  }
}

TEST(FlagsOfMegatron, MostTrainingFlagsRunOrMayBeDropped) {
  for (const auto& release : releases) {
    auto counts = flags::count_by_status(table_of(release), facts());
    const auto all = counts[flags::RowStatus::runs] + counts[flags::RowStatus::ignored] +
                     counts[flags::RowStatus::planned] + counts[flags::RowStatus::refused];
    EXPECT_GT(10 * (counts[flags::RowStatus::runs] + counts[flags::RowStatus::ignored]), 7 * all);
    EXPECT_LT(100 * counts[flags::RowStatus::refused], 6 * all);
  }
}

std::map<std::string, bool> planned_keys() {
  std::map<std::string, bool> known;  // whether it is planned
  for (const auto& [group, schemas] : facts())
    for (const auto& schema : schemas)
      for (const auto& option : schema.options) known[group + "." + option.name] = option.planned;
  return known;
}

TEST(FlagTables, EveryRowLeadsToOptionsThatExist) {
  const auto known = planned_keys();
  for (const auto& file : tables()) {
    const auto table = flags::FlagTable::from(file, options::Mappings());
    for (const auto& row : table.rows()) {
      EXPECT_TRUE(row.to.empty() || known.count(row.option())) << file << ": " << row.flag << " leads to " << row.to;
      for (const auto* said : {&row.also, &row.always})
        for (const auto& [option, value] : *said)
          EXPECT_TRUE(known.count(option.substr(0, option.find('['))))
              << file << ": " << row.flag << " leads to " << option;
      EXPECT_EQ(row.why.empty(), row.kind != Kind::ignored && row.kind != Kind::refused && row.kind != Kind::only)
          << file << ": " << row.flag;
    }
  }
}

TEST(FlagTables, WhatIsNotGivenPassesOurLimits) {
  for (const auto& file : tables()) {
    const auto table = flags::FlagTable::from(file, options::Mappings());
    for (const auto& line : complaints(table, {}))
      EXPECT_EQ(line.find("takes "), std::string::npos) << file << ": " << line;
  }
}

TEST(FlagTables, TheirWordsAndWhatAFlagSaysBesidesPassOurLimits) {
  int number = 0;
  for (const auto& file : tables()) {
    const auto table = flags::FlagTable::from(file, options::Mappings());
    const auto own = flags::FlagTable::from(options::Mappings().table("flags/" + file));
    for (const auto& row : own.rows()) {
      Lines words = {""};
      for (const auto& [theirs, ours] : row.words) words.push_back(theirs);
      for (const auto& [theirs, settings] : row.settings) words.push_back(theirs);
      const bool bare = row.kind == Kind::fixed || row.kind == Kind::implied ||
                        (row.kind == Kind::derived && row.takes == flags::FlagRow::Takes::none);
      if (!bare) words.erase(words.begin());
      for (const auto& word : words) {
        if (number++ % part_of_inputs != 0) continue;
        const auto given = one_flag(row.flag, word);
        options::Report report;
        if (table.convert(given, facts(), report).flags.at(0).status == flags::FlagStatus::planned) continue;
        for (const auto& line : complaints_of(table, given))
          EXPECT_EQ(line.find("takes "), std::string::npos) << file << " " << row.flag << " " << word << ": " << line;
      }
    }
  }
}

/// Options that only keys of a file set may say why no flag does.
TEST(FlagTables, EveryOptionIsSetByAFlagOrSaysWhyNot) {
  std::set<std::string> by_flags, by_keys;
  for (const auto& file : tables()) {
    const auto table = flags::FlagTable::from(file, options::Mappings());
    for (const auto& row : table.rows()) {
      auto& reached = row.section.empty() ? by_flags : by_keys;
      if (!row.to.empty()) reached.insert(row.option());
      if (!row.section.empty()) reached.insert(row.also_to.begin(), row.also_to.end());
      for (const auto* said : {&row.also, &row.always})
        for (const auto& [option, value] : *said) reached.insert(option.substr(0, option.find('[')));
    }
  }
  for (const auto& [group, schemas] : facts())
    for (const auto& schema : schemas)
      for (const auto& option : schema.options) {
        const auto key = group + "." + option.name;
        if (key == "model_config.model_type") continue;  // the program of Megatron-LM that runs says it, no flag
        EXPECT_TRUE(by_flags.count(key) == 0 || option.no_flag.empty()) << key << ": " << option.no_flag;
        EXPECT_TRUE(by_flags.count(key) + by_keys.count(key) > 0 || !option.no_flag.empty())
            << key << ": a row of mappings/flags sets it, or its describe() says no_flag(why)";
      }
}

TEST(FlagsPage, IsCurrent) {
  std::ifstream file(DOCS_DIR "/flags.md");
  const std::string page(std::istreambuf_iterator<char>(file), {});
  EXPECT_TRUE(page == flags::flags_page(recipe::all_facts({}), options::Mappings()))
      << "docs/flags.md is stale; run `tessera options --flags-markdown > docs/flags.md`";
}

TEST(FlagsPage, TellsOfARowWhetherItRuns) {
  const auto table = table_of("megatron");
  const auto status = [&](const std::string& flag) {
    return flags::word_of(flags::status_of(*table.find(flag), facts()));
  };
  EXPECT_EQ(status("--lr"), "runs");
  EXPECT_EQ(status("--use-flash-attn"), "runs");  // planned by name, but it changes nothing
  EXPECT_EQ(status("--tokenizer-type"), "runs");
  EXPECT_EQ(status("--num-experts"), "runs");
  EXPECT_EQ(status("--encoder-tensor-model-parallel-size"), "planned");
  EXPECT_EQ(status("--multi-latent-attention"), "runs");
  EXPECT_EQ(status("--num-workers"), "runs");
  EXPECT_EQ(status("--distributed-backend"), "ignored");
  EXPECT_EQ(status("--warmup"), "refused");
}

TEST(FlagStory, SaysWhatAFlagBecomesInEveryTable) {
  const auto story = flags::flag_details("--adam-beta2", facts(), options::Mappings());
  EXPECT_NE(story.find("\n  --adam-beta2: runs, one value, their name adam_beta2\n    optimizer_config.betas[1]\n"
                       "    not given: 0.999\n"),
            std::string::npos)
      << story;
  EXPECT_EQ(story.find("megatron@core_v0.12.1, megatron@main"), story.find("megatron@core"));
  const auto interval = flags::flag_details("--eval-interval", facts(), options::Mappings());
  EXPECT_NE(interval.find("megatron@main\n  --eval-interval"), std::string::npos) << interval;
  EXPECT_EQ(flags::flag_details("adam_beta2", facts(), options::Mappings()).rfind(story, 0), 0u)
      << "and that of programs that spell it so";
  EXPECT_NE(flags::flag_details("--encoder-tensor-model-parallel-size", facts(), options::Mappings())
                .find("only 0 is taken yet"),
            std::string::npos);
}

TEST(FlagStory, OfAFlagThatNobodyHasNamesTheNearest) {
  try {
    flags::flag_details("--adam-beta3", recipe::all_facts({}), options::Mappings());
    FAIL() << "a story of no flag";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("did you mean '--adam-beta"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace tessera
