#include "framework/interop/flags/spec_rule.h"

#include <gtest/gtest.h>

#include "framework/recipe/recipe.h"
#include "tests/own_folder.h"

namespace tessera::flags {
namespace {

using Lines = std::vector<std::string>;

class SpecRule : public InOwnFolder {
 protected:
  static Lines problems(const Lines& sets) {
    write("run.yaml",
          "model_config: {num_layers: 8, hidden_size: 32, num_attention_heads: 4, seq_length: 16, vocab_size: 64}\n"
          "dataset_config: {dataset_type: mock, batch_size: 2}\n"
          "training_config: {training_iters: 20}\n");
    recipe::Registries registries;
    registries.rules.push_back(check_spec);
    options::Report report;
    recipe::read_recipe("run.yaml", sets, registries, report);
    return report.problems();
  }
};

TEST_F(SpecRule, ASpecificationOfLayersMustSayTheSameAsTheOptions) {
  const auto of = [&](const std::string& module, Lines sets = {}) {
    sets.push_back("model_config.spec=[mindspeed_llm.tasks.models.spec." + module + ", layer_spec]");
    const auto all = problems(sets);
    return all.empty() ? "" : all[0];
  };
  EXPECT_EQ(of("qwen3_spec"), "");
  EXPECT_EQ(of("gemma2_spec", {"model_config.use_sandwich_norm=true", "model_config.normalization=RMSNorm"}), "");
  EXPECT_EQ(
      of("gemma2_spec"),
      "--set model_config.spec: spec 'mindspeed_llm.tasks.models.spec.gemma2_spec layer_spec' describes layers with "
      "model_config.use_sandwich_norm true, but that is false; give model_config.use_sandwich_norm: true, or leave "
      "spec out");
  for (const auto* expected : {"is refused: the layers of another model", "leave spec out"})
    EXPECT_NE(of("longcat_spec").find(expected), std::string::npos) << of("longcat_spec");
  for (const auto* expected : {"'mindspeed_llm.tasks.models.spec.never_spec layer_spec' is not known", "qwen3_spec"})
    EXPECT_NE(of("never_spec").find(expected), std::string::npos) << of("never_spec");
}

TEST_F(SpecRule, TheTableOfTheRecipesMappingsIsRead) {
  std::filesystem::create_directories("tables/flags");
  write("tables/flags/megatron.yaml", "flags:\n  --spec: {settings: {a b: {}}, refused_words: {}}\n");
  write("run.yaml",
        "model_config: {num_layers: 2, hidden_size: 8, num_attention_heads: 2, seq_length: 8, vocab_size: 64}\n"
        "dataset_config: {dataset_type: mock}\n"
        "training_config: {training_iters: 2}\n");
  recipe::Registries registries;
  registries.rules.push_back(check_spec);
  registries.mappings = options::Mappings("tables");
  options::Report report;
  recipe::read_recipe("run.yaml", {"model_config.spec=[a, b]"}, registries, report);
  EXPECT_EQ(report.problems(), Lines{});
}

}  // namespace
}  // namespace tessera::flags
