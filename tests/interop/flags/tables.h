#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "framework/interop/flags/flag_table.h"
#include "framework/options/embedded.h"
#include "framework/options/report.h"
#include "framework/options/same.h"
#include "framework/options/yaml.h"
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

/// The value of an option, or its derived default.
inline options::Value effective(const recipe::Recipe& recipe, const std::string& path) {
  const auto* value = recipe.resolved.at(path);
  const auto derived = recipe.derived(path);
  if (derived && !derived->value.empty()) return options::Value::of(derived->value, {});
  return value ? *value : options::Value{};
}

/// Whether both make the same run: a derived default that is written is the same as null. Options in `except` may
/// differ.
inline void expect_same_run(const recipe::Recipe& a, const recipe::Recipe& b, const std::string& what,
                            const std::set<std::string>& except = {}) {
  for (const auto& [group, options] : a.resolved.fields)
    for (const auto& field : options.fields) {
      const auto path = group + "." + field.name;
      EXPECT_TRUE(except.count(path) || options::same(effective(a, path), effective(b, path)))
          << what << ": " << path << " " << effective(a, path) << " became " << effective(b, path);
    }
}

/// The models of configs/models/ without images: "models/llama2_7b.yaml" and its text.
inline std::map<std::string, std::string> models_of_text() {
  std::map<std::string, std::string> all;
  for (const auto& file : options::embedded_configs()) {
    const std::string name(file.name), words(file.text);
    if (name.rfind("models/", 0) == 0 && std::count(name.begin(), name.end(), '/') == 1 &&
        words.find("use_visual_encoder") == std::string::npos)
      all.emplace(name, words);
  }
  return all;
}

/// A short run of one of them, with `more` laid over it.
inline recipe::Recipe run_of_model(const std::string& name, const std::string& more) {
  const std::string run =
      "training_config: {training_iters: 9, output_dir: out}\n"
      "optimizer_config: {learning_rate: 1e-4}\n"
      "dataset_config: {dataset_type: mock, batch_size: 1, tokenizer_type: HuggingFaceTokenizer, tokenizer_model: "
      "there}\n"
      "model_config: {vocab_size: null}\n";
  auto tree = options::parse_yaml(models_of_text().at(name), name);
  for (const auto& words : {run, more}) tree.lay(options::parse_yaml(words, "run.yaml"));
  return recipe_of(tree);
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
