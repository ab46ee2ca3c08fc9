#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "framework/interop/flags/flag_table.h"
#include "framework/options/report.h"
#include "framework/options/same.h"
#include "framework/recipe/recipe.h"

// What tests of the tables of flags share.
namespace tessera {

using Lines = std::vector<std::string>;

/// Every option of a recipe.
inline const options::Facts& facts() {
  static const auto all = recipe::all_facts({});
  return all;
}

/// "group.option" of each.
inline std::set<std::string> every_key() {
  std::set<std::string> known;
  for (const auto& [group, schemas] : facts())
    for (const auto& schema : schemas)
      for (const auto& option : schema.options) known.insert(group + "." + option.name);
  return known;
}

/// The table that is used when none is named.
inline const flags::FlagTable& megatron() {
  static const auto table = flags::FlagTable::named(flags::FlagTable::usual, options::Mappings());
  return table;
}

/// The command line of a small run, for these tables.
inline const Lines& small_run() {
  static const Lines all = {"--num-layers",
                            "2",
                            "--hidden-size",
                            "64",
                            "--num-attention-heads",
                            "4",
                            "--seq-length",
                            "32",
                            "--max-position-embeddings",
                            "32",
                            "--lr",
                            "0.001",
                            "--train-iters",
                            "7",
                            "--micro-batch-size",
                            "1",
                            "--mock-data",
                            "--tokenizer-type",
                            "NullTokenizer",
                            "--vocab-size",
                            "99"};
  return all;
}

inline Lines with(Lines argv, const Lines& more) {
  argv.insert(argv.end(), more.begin(), more.end());
  return argv;
}

/// `argv` without `flag` and the one word that follows it, wherever they are.
inline Lines without(Lines argv, const std::string& flag) {
  for (auto at = std::find(argv.begin(), argv.end(), flag); at != argv.end();
       at = std::find(argv.begin(), argv.end(), flag))
    argv.erase(at, at + 2);
  return argv;
}

/// The value at a path as text; "nothing" if there is none.
inline std::string text_at(const options::Value& tree, const std::string& path) {
  const auto* value = tree.at(path);
  return value ? text(*value) : "nothing";
}

/// The recipe that a command line of `megatron()` becomes, which has no mistakes.
inline options::Value megatron_recipe(const Lines& argv) {
  options::Report report;
  auto tree = megatron().convert(argv, facts(), report);
  report.must_be_good();
  return tree;
}
inline recipe::Recipe recipe_of(const options::Value& tree) {
  options::Report report;
  auto recipe = recipe::read_recipe(tree, {}, report);
  report.must_be_good();
  return recipe;
}

/// Whether both have the same values of all options.
inline void expect_same(const recipe::Recipe& a, const recipe::Recipe& b) {
  EXPECT_TRUE(options::same(a.resolved, b.resolved));
  for (const auto& [group, options] : a.resolved.fields)
    for (const auto& field : options.fields)
      EXPECT_TRUE(options::same(field.value, *b.resolved.at(group)->find(field.name)))
          << field.name << ": " << field.value << " became " << *b.resolved.at(group)->find(field.name);
}

/// A flag, or a key of a file, with one word or none.
inline std::vector<flags::GivenFlag> one_flag(const std::string& flag, const std::string& word = "") {
  return {{flag, word.empty() ? Lines{} : Lines{word}, {flag, 0, "", 0}}};
}

/// The findings of the recipe that flags become, except for missing options.
inline Lines complaints_of(const flags::FlagTable& table, const std::vector<flags::GivenFlag>& given) {
  options::Report report;
  recipe::read_recipe(table.convert(given, facts(), report).recipe, {}, report);
  Lines all;
  for (const auto& finding : report.findings())
    if (finding.message.find("missing") == std::string::npos) all.push_back(options::text_of(finding));
  return all;
}

inline Lines complaints(const flags::FlagTable& table, const Lines& argv) {
  return complaints_of(table, flags::flags_of(argv));
}

}  // namespace tessera
