// Whatever number a recipe gives, it is refused at its line or its figures are counted without overflow.
#include <gtest/gtest.h>

#include <cmath>
#include <iostream>
#include <random>

#include "framework/options/yaml.h"
#include "framework/recipe/figures.h"
#include "framework/recipe/memory.h"
#include "tests/sanitized.h"

namespace tessera::recipe {
namespace {

using Groups = std::map<std::string, std::map<std::string, std::string>>;

const Groups least_groups = {{"training_config", {{"training_iters", "20"}}},
                             {"model_config",
                              {{"num_layers", "2"},
                               {"hidden_size", "32"},
                               {"num_attention_heads", "4"},
                               {"seq_length", "16"},
                               {"vocab_size", "64"}}},
                             {"dataset_config", {{"dataset_type", "mock"}}}};

/// An option that takes numbers, with the key and word that choose the thing it belongs to.
struct Number {
  std::string group, key, chosen_by, choice;
  options::OptionFacts facts;
  bool in_list() const { return facts.type.rfind("list of", 0) == 0; }
  bool whole() const { return facts.type.find("int") != std::string::npos; }
};

std::vector<Number> numbers() {
  std::vector<Number> all;
  for (const auto& [group, schemas] : all_facts(Registries{}))
    for (const auto& schema : schemas)
      for (const auto& option : schema.options) {
        const bool number =
            option.json_schema.find("\"object\"") == std::string::npos &&  // a map limits its own numbers
            (option.type.find("int") != std::string::npos || option.type.find("float") != std::string::npos);
        const bool words = !option.choices.empty();
        if (number && !words && !option.planned) all.push_back({group, option.name, schema.key, schema.type, option});
      }
  return all;
}

std::string yaml_of(const Groups& groups) {
  std::string all;
  for (const auto& [group, options] : groups) {
    all += group + ":\n";
    for (const auto& [key, value] : options) all += text("  ", key, ": ", value, "\n");
  }
  return all;
}

class ExtremeSizes : public testing::Test {
 protected:
  std::size_t upto(std::size_t count) { return static_cast<std::size_t>(random() % count); }

  /// Far out, at a limit, or just beyond it.
  std::string value_for(const Number& option) {
    static const std::vector<std::string> ints = {"0",
                                                  "1",
                                                  "-1",
                                                  "2",
                                                  "3",
                                                  "9223372036854775807",
                                                  "-9223372036854775808",
                                                  "9223372036854775808",
                                                  "1000000000000",
                                                  "2147483647",
                                                  "2147483648",
                                                  "4294967295",
                                                  "1000000000",
                                                  "1048576",
                                                  "4096",
                                                  "4611686018427387904",
                                                  "1e15"};
    static const std::vector<std::string> floats = {"0",    "1",    "-1",  "1e308", "-1e308", "1e-320", "1e39", "inf",
                                                    "-inf", ".inf", "nan", ".nan",  "1e999",  "0.5",    "1e38", "1e6"};
    auto value = option.whole() ? ints[upto(ints.size())] : floats[upto(floats.size())];
    if (upto(2) == 0 && !option.facts.limits.empty()) {
      const auto& limit = option.facts.limits[upto(option.facts.limits.size())];
      value = limit.substr(limit.find(' ') + 1);
      std::int64_t bound = 0;
      if (option.whole() && options::OptionType<std::int64_t>::read(options::Value::of(value, {}), bound))
        value = std::to_string(bound + static_cast<std::int64_t>(upto(3)) - 1);
    }
    if (!option.in_list()) return value;
    return upto(2) == 0 ? text("[", value, ", ", value, "]") : text("[[", value, "]]");
  }

  static void set(Groups& groups, const Number& option, const std::string& value) {
    if (!option.chosen_by.empty()) groups[option.group][option.chosen_by] = option.choice;
    groups[option.group][option.key] = value;
  }

  /// Throws ConfigError when the recipe is refused.
  static void judge(const std::string& yaml) {
    options::Report report;
    const auto recipe = read_recipe(options::parse_yaml(yaml, "run.yaml"), Registries{}, report);
    for (const auto& problem : report.problems()) EXPECT_EQ(problem.rfind("run.yaml:", 0), 0U) << problem;
    report.must_be_good();
    const auto& o = recipe.parallel;
    const auto ranks = o.tensor_model_parallel_size * o.pipeline_model_parallel_size * o.data_parallel_size.value_or(1);
    check_ranks(recipe, ranks);
    const auto f = figures(recipe, parallel::data_parallel_ranks(o, ranks));
    const auto layout = layout_figures(recipe, ranks);
    for (const auto number : {f.parameters, f.vocabulary, f.weight_bytes, f.state_bytes, f.micro_batches,
                              f.samples_per_step, f.tokens_per_step, f.steps, f.samples, f.tokens})
      EXPECT_GE(number, 0);
    EXPECT_GE(f.state_bytes, f.weight_bytes);
    EXPECT_GE(f.tokens, f.samples);
    EXPECT_TRUE(std::isfinite(f.flops_per_step) && f.flops_per_step >= 0);
    for (const auto& rank : layout.ranks) EXPECT_TRUE(rank.parameters >= 0 && rank.state.all() >= 0);
    for (const auto& need : memory_by_stage(recipe, layout))
      for (const auto& part : need.parts) EXPECT_GE(part.bytes, 0) << part.name;
  }

  std::uint64_t seed = std::random_device{}();
  std::mt19937_64 random{seed};
};

TEST_F(ExtremeSizes, EveryNumberHasAnUpperLimit) {
  for (const auto& option : numbers()) {
    const auto& limits = option.facts.limits;
    EXPECT_TRUE(std::any_of(limits.begin(), limits.end(), [](const auto& limit) { return limit[0] == '<'; }))
        << option.group << "." << option.key;
  }
}

TEST_F(ExtremeSizes, AreRefusedAtTheirLineOrCountedWithoutOverflow) {
  std::cout << "seed " << seed << std::endl;  // also of a run that does not end
  const auto all = numbers();
  ASSERT_GT(all.size(), 60U);
  int taken = 0, refused = 0;
  const auto take = [&](const Groups& groups) {
    const auto yaml = yaml_of(groups);
    SCOPED_TRACE(yaml);
    try {
      judge(yaml);
      ++taken;
    } catch (const ConfigError&) {
      ++refused;
    }
  };
  int number = 0;
  for (int round = 0; round < 4; ++round)
    for (const auto& option : all) {
      if (number++ % part_of_inputs != 0) continue;
      auto groups = least_groups;
      set(groups, option, value_for(option));
      take(groups);
    }
  for (int round = 0; round < 300 / part_of_inputs; ++round) {
    auto groups = least_groups;
    for (auto count = 2 + upto(4); count > 0; --count) {
      const auto& option = all[upto(all.size())];
      set(groups, option, value_for(option));
    }
    take(groups);
  }
  EXPECT_GT(taken, 100 / part_of_inputs);
  EXPECT_GT(refused, 100 / part_of_inputs);
}

TEST_F(ExtremeSizes, TheLargestModelThatEachLimitAllowsIsCounted) {
  auto groups = least_groups;
  groups["model_config"] = {
      {"num_layers", "4096"},         {"hidden_size", "1048576"}, {"num_attention_heads", "64"},
      {"ffn_hidden_size", "4194304"}, {"kv_channels", "65536"},   {"seq_length", "1073741824"},
      {"vocab_size", "2147483647"},   {"hidden_act", "swiglu"},   {"untie_embeddings_and_output_weights", "true"}};
  judge(yaml_of(groups));
  groups["model_config"]["num_attention_heads"] = "65";
  EXPECT_THROW(judge(yaml_of(groups)), ConfigError);
}

TEST_F(ExtremeSizes, ARunThatCannotBeCountedOrHasNoStepIsRefusedAtItsLine) {
  const auto story = [](const Groups& groups) -> std::string {
    try {
      judge(yaml_of(groups));
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "taken";
  };
  auto long_run = least_groups;
  long_run["training_config"]["training_iters"] = "1000000000000";
  long_run["dataset_config"]["batch_size"] = "1000000";
  EXPECT_EQ(story(long_run).rfind("run.yaml:", 0), 0U) << story(long_run);
  EXPECT_NE(story(long_run).find("does not fit into 64 bits"), std::string::npos) << story(long_run);
  auto no_step = least_groups;
  no_step["training_config"] = {{"seed", "1"}};
  no_step["dataset_config"]["train_samples"] = "3";
  no_step["dataset_config"]["global_batch_size"] = "4";
  EXPECT_EQ(story(no_step),
            "run.yaml:4: train_samples is 3, but a step has 4 samples: the run has no step; give at least as many "
            "samples as a step has");
}

}  // namespace
}  // namespace tessera::recipe
