#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "framework/base/files.h"
#include "framework/interop/hugging_face/family.h"
#include "framework/interop/hugging_face/hugging_face.h"
#include "framework/recipe/figures.h"
#include "framework/recipe/imported_recipe.h"
#include "tests/story.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using LibraryJson = nlohmann::json;

/// Models whose recipes stand in configs/models, with what is published of each: parameters, and facts of config.json.
LibraryJson published_models() { return LibraryJson::parse(read_file(TESTS_DATA "/published_models.json")); }

fs::path file_of(const std::string& model) { return fs::path(CONFIGS_DIR) / "models" / (model + ".yaml"); }

recipe::Recipe recipe_of_model(const std::string& model) {
  return recipe::read_recipe(file_of(model).string(),
                             {"training_config.training_iters=1", "dataset_config.dataset_type=mock"}, {});
}

/// "7.61B" and what its last digit stands for: published numbers are rounded, up or down.
std::pair<double, double> number_and_rounding(const std::string& words) {
  const double unit = words.back() == 'B' ? 1e9 : 1e6;
  const auto dot = words.find('.');
  const auto digits = dot == std::string::npos ? 0 : static_cast<double>(words.size() - dot - 2);
  return {std::stod(words) * unit, unit * std::pow(10, -digits)};
}

/// All parameters but those of the parts that the published number does not count.
double counted_parameters(const recipe::Figures& model, const LibraryJson& facts) {
  auto counted = model.parameters;
  for (const std::string part : facts.value("not_counted", LibraryJson::array())) {
    const auto& parts = model.parameters_by_part;
    const auto found = std::find_if(parts.begin(), parts.end(), [&](const auto& one) { return one.first == part; });
    if (found == parts.end()) throw ConfigError("published_models.json: no part of the model is called " + part);
    counted -= found->second;
  }
  return static_cast<double>(counted);
}

TEST(PublishedModels, EveryRecipeOfAModelHasPublishedFacts) {
  const auto published = published_models();
  std::size_t recipes = 0;
  for (const auto& entry : fs::directory_iterator(fs::path(CONFIGS_DIR) / "models")) {
    const auto model = entry.path().stem().string();
    if (entry.is_directory()) continue;
    ++recipes;
    EXPECT_TRUE(published.contains(model)) << model;
    EXPECT_TRUE(fs::exists(fs::path(CONFIGS_DIR) / "models" / "tiny" / entry.path().filename())) << model;
  }
  EXPECT_EQ(recipes, published.size());
}

TEST(PublishedModels, HaveThePublishedNumberOfParameters) {
  const auto published = published_models();
  for (const auto& [model, facts] : published.items()) {
    const auto figures_of_model = recipe::figures(recipe_of_model(model));
    EXPECT_EQ(figures_of_model.parameters, facts["parameters"].get<std::int64_t>()) << model;
    EXPECT_EQ(figures_of_model.active_parameters, facts.value("active", facts["parameters"]).get<std::int64_t>())
        << model;
    const auto [number, rounding] = number_and_rounding(facts["published"]);
    EXPECT_NEAR(counted_parameters(figures_of_model, facts), number, rounding) << model;
  }
}

TEST(PublishedModels, AreWhatTheirConfigJsonSays) {
  const options::Mappings mappings;
  int compared = 0;
  const auto published = published_models();
  for (const auto& [model, facts] : published.items()) {
    if (!facts.contains("config")) continue;
    ++compared;
    const auto config = hugging_face::parse_hugging_face_config(facts["config"].dump(), model, mappings);
    auto tree = hugging_face::recipe_with(config.model_config);
    tree.set("model_config.seq_length", options::Value::of("1024", {model, 0, "", 1}));
    const auto vocabulary = facts["config"]["vocab_size"].get<std::int64_t>();
    auto theirs = hugging_face::whole_model_config(recipe::imported_recipe(tree, {}, {}), vocabulary);
    auto ours = hugging_face::whole_model_config(recipe_of_model(model), vocabulary);
    // What config.json does not say, or says otherwise than the paper: how the model was trained.
    auto skipped = facts.value("not_as_config", std::vector<std::string>{});
    skipped.emplace_back("seq_length");
    skipped.emplace_back("embedding_padding_token");
    for (const auto& [key, value] : theirs.fields) {
      if (std::find(skipped.begin(), skipped.end(), key) != skipped.end()) continue;
      const auto* same = ours.find(key);
      ASSERT_NE(same, nullptr) << model << ": " << key;
      EXPECT_EQ(text(*same), text(value)) << model << ": " << key;
    }
  }
  EXPECT_EQ(compared, 31);
}

}  // namespace
}  // namespace tessera
