#include "framework/interop/flags/recipe_writer.h"

#include <gtest/gtest.h>

#include "framework/base/files.h"
#include "framework/interop/flags/known_models.h"
#include "framework/interop/flags/source.h"
#include "framework/options/same.h"
#include "framework/options/yaml.h"
#include "framework/recipe/recipe.h"
#include "tests/interop/flags/tables.h"
#include "tests/own_folder.h"
#include "tests/tree.h"

namespace tessera {
namespace {

class RecipeWriter : public InOwnFolder {};

TEST_F(RecipeWriter, WhatIsWrittenIsReadAsTheWholeConversionIs) {
  for (const auto& more : {std::vector<std::string>{},
                           {"--bf16", "--swiglu", "--disable-bias-linear"},
                           {"--optimizer", "sgd"},
                           {"--fp16", "--loss-scale-window", "50"}}) {
    const auto tree = megatron_recipe(with(small_run(), more));
    options::Report report;
    const auto whole = recipe::read_recipe(tree, {}, report);
    write("run.yaml", flags::write_recipe(flags::what_differs(tree, {}, facts()), facts(), {{}, ""}));
    const auto again = recipe::read_recipe("run.yaml", {}, {}, report);
    report.must_be_good();
    expect_same(whole, again);
  }
}

TEST_F(RecipeWriter, OnlyWhatDiffersFromTheBaseStands) {
  const auto tree =
      options::parse_yaml("model_config: {num_layers: 12, hidden_size: 768, rotary_base: 10000.0}\n", "t");
  const auto base = options::parse_yaml("model_config: {num_layers: 12, hidden_size: 512}\n", "b");
  EXPECT_EQ(flags::write_recipe(flags::what_differs(tree, base, facts()), facts(), {{}, "b.yaml"}),
            "base: b.yaml\nmodel_config:\n  hidden_size: 768\n");
}

TEST_F(RecipeWriter, GroupsStandInTheOrderOfThought) {
  const auto tree = options::parse_yaml(
      "dataset_config: {batch_size: 4}\noptimizer_config: {weight_decay: 0.3}\nmodel_config: {num_layers: 3}\n", "t");
  EXPECT_EQ(flags::write_recipe(tree, facts(), {{"a", ""}, ""}),
            "# a\n#\nmodel_config:\n  num_layers: 3\noptimizer_config:\n  weight_decay: 0.3\ndataset_config:\n"
            "  batch_size: 4\n");
}

TEST_F(RecipeWriter, WordsThatYamlTakesForSomethingElseAreQuoted) {
  for (const auto* words : {"", "null", "a: b", "# no", "- x", "[1", "'", "\"q\"", "{a}", "x #y", "tab\there", "-1",
                            "1e-5", "a b", "C:\\x", "*", "~", "end:"}) {
    options::Value tree;
    tree.set("training_config.output_dir", options::Value::of(words, {}));
    auto item = options::Value::of(words, {});
    options::Value list;
    list.kind = options::Value::Kind::list;
    list.items = {item, item};
    tree.set("training_config.other", list);
    const auto again = options::parse_yaml(flags::write_recipe(tree, facts(), {{}, ""}), "again");
    EXPECT_EQ(value_at(again, "training_config.output_dir").scalar, words);
    EXPECT_EQ(value_at(again, "training_config.output_dir").kind, options::Value::Kind::scalar) << words;
    EXPECT_EQ(value_at(again, "training_config.other").items.at(1).scalar, words);
  }
}

TEST_F(RecipeWriter, PathsAreVariablesWithTheirUsualValue) {
  auto tree = options::parse_yaml(
      "dataset_config: {data_path: corpus/text, vocab_file: \"${V}/v.json\", split: \"1,1,1\"}\n", "t");
  flags::make_paths_variables(tree);
  EXPECT_EQ(value_at(tree, "dataset_config.data_path").scalar, "${DATA_PATH:-corpus/text}");
  EXPECT_EQ(value_at(tree, "dataset_config.vocab_file").scalar, "${V}/v.json");
  EXPECT_EQ(value_at(tree, "dataset_config.split").scalar, "1,1,1");
}

TEST_F(RecipeWriter, AModelThatIsKnownIsTheBase) {
  const auto llama = options::parse_yaml(
      "model_config: {num_layers: 32, hidden_size: 4096, ffn_hidden_size: 11008, num_attention_heads: 32, "
      "position_embedding_type: rope, normalization: RMSNorm, hidden_act: swiglu, add_bias_linear: false}\n",
      "t");
  EXPECT_EQ(flags::known_model(llama, facts()).name, "models/llama2_7b.yaml");
  auto other = llama;
  other.set("model_config.num_layers", options::Value::of("31", {}));
  EXPECT_EQ(flags::known_model(other, facts()).name, "");
  other = llama;
  other.set("model_config.normalization", options::Value::of("LayerNorm", {}));
  EXPECT_EQ(flags::known_model(other, facts()).name, "");
}

TEST_F(RecipeWriter, WhatTheBaseSaysAndTheSourceLeavesOutIsAnswered) {
  auto tree = options::parse_yaml("model_config: {num_layers: 2}\n", "t");
  const auto base = options::parse_yaml("model_config: {num_layers: 2, vocab_size: 32000}\n", "b");
  flags::answer_base(tree, base, facts());
  EXPECT_EQ(value_at(tree, "model_config.vocab_size").kind, options::Value::Kind::none);
  EXPECT_EQ(flags::write_recipe(flags::what_differs(tree, base, facts()), facts(), {{}, ""}),
            "model_config:\n  vocab_size: null\n");
}

TEST_F(RecipeWriter, EveryGroupOfTheBaseIsAnswered) {
  auto tree = options::parse_yaml("model_config: {num_layers: 2}\n", "t");
  const auto base = options::parse_yaml("moe_config: {moe_ffn_hidden_size: 8, moe_router_topk: 6}\n", "b");
  flags::answer_base(tree, base, facts());
  EXPECT_EQ(value_at(tree, "moe_config.moe_ffn_hidden_size").kind, options::Value::Kind::none);
  EXPECT_EQ(value_at(tree, "moe_config.moe_router_topk").scalar, "2");
}

TEST_F(RecipeWriter, WhatAScriptDoesNotKnowGetsAName) {
  options::Value tree;
  tree.set("optimizer_config.learning_rate", options::Value::of("$3", {}));
  tree.set("training_config.output_dir", options::Value::of("${26}/x/${NAME}/$OTHER-`date`", {}));
  tree.set("dataset_config.split", options::Value::of("$(cat f | tr '(' ')')", {}));
  flags::name_unknowns(tree);
  EXPECT_EQ(value_at(tree, "optimizer_config.learning_rate").scalar, "${ARG_3}");
  EXPECT_EQ(value_at(tree, "training_config.output_dir").scalar, "${ARG_26}/x/${NAME}/${OTHER}-${OUTPUT_DIR}");
  EXPECT_EQ(value_at(tree, "dataset_config.split").scalar.rfind("${SPLIT}", 0), 0u);
}

}  // namespace
}  // namespace tessera
