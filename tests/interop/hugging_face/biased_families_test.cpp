// config.json of Falcon's three generations of layers, of BLOOM and of gpt-oss.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "framework/interop/hugging_face/family.h"
#include "framework/interop/hugging_face/hugging_face_export.h"
#include "framework/recipe/imported_recipe.h"
#include "tests/interop/hugging_face/recorded.h"
#include "tests/story.h"

namespace tessera {
namespace {

using LibraryJson = nlohmann::json;

LibraryJson with(const std::string& family, const LibraryJson& change) {
  auto config = LibraryJson::parse(read_file(families / family / "config.json"));
  config.update(change);
  return config;
}

/// Number of key/value heads, parallel layers, one norm for both branches, positions.
std::string layers_of(const LibraryJson& config) {
  const options::Mappings mappings;
  try {
    const auto read = hugging_face::parse_hugging_face_config(config.dump(), "config.json", mappings).model_config;
    std::string words;
    for (const char* key :
         {"num_query_groups", "use_parallel_residual", "shared_parallel_norm", "position_embedding_type"})
      words += text(words.empty() ? "" : " ", *read.find(key));
    return words;
  } catch (const ConfigError& error) {
    return error.what();
  }
}

TEST(Falcon, HeadsAndNormsAreThoseOfItsGeneration) {
  const auto expect = [](const char* words, const LibraryJson& change) {
    EXPECT_EQ(layers_of(with("falcon", change)), words) << change;
  };
  const auto newer = LibraryJson::object({{"new_decoder_architecture", true}});
  expect("1 true true rope", LibraryJson::object());
  expect("1 true true rope", {{"num_kv_heads", nullptr}});
  expect("4 true true rope", {{"multi_query", false}, {"num_kv_heads", nullptr}});
  expect("1 false false alibi", {{"parallel_attn", false}, {"alibi", true}});
  expect("2 true false rope", newer);
  expect("4 true false rope", {{"new_decoder_architecture", true}, {"num_kv_heads", nullptr}});
  expect("2 true true rope", {{"new_decoder_architecture", true}, {"num_ln_in_parallel_attn", 1}});
  expect("2 true false rope", {{"new_decoder_architecture", true}, {"num_ln_in_parallel_attn", 2}});
}

TEST(Falcon, WhatTransformersCannotComputeIsRefusedByName) {
  const auto refused = [](const char* words, const LibraryJson& change) {
    const auto story = layers_of(with("falcon", change));
    EXPECT_NE(story.find(words), std::string::npos) << change << " " << story;
  };
  refused("num_kv_heads is 2 and num_attention_heads 4", {{"multi_query", false}});
  refused("parallel_attn is false and new_decoder_architecture is true",
          {{"parallel_attn", false}, {"new_decoder_architecture", true}});
  refused("num_ln_in_parallel_attn is 2; expected 1", {{"num_ln_in_parallel_attn", 2}});
  refused("num_ln_in_parallel_attn is 3", {{"num_ln_in_parallel_attn", 3}, {"new_decoder_architecture", true}});
  refused("hidden_dropout is 0.1", {{"hidden_dropout", 0.1}});
  refused("attention_dropout is 0.1", {{"attention_dropout", 0.1}});
  refused("activation is tanh", {{"activation", "tanh"}});
}

/// Each generation goes out as a configuration that means the same layers.
TEST(Falcon, GenerationsGoOutAsTheyMean) {
  const options::Mappings mappings;
  for (const LibraryJson& change :
       {LibraryJson::object({{"multi_query", true}}),
        LibraryJson::object({{"multi_query", false}, {"num_kv_heads", 4}}),
        LibraryJson::object({{"new_decoder_architecture", true}}),
        LibraryJson::object({{"new_decoder_architecture", true}, {"num_ln_in_parallel_attn", 1}}),
        LibraryJson::object({{"parallel_attn", false}, {"alibi", true}}),
        LibraryJson::object({{"parallel_attn", false}, {"multi_query", false}, {"num_kv_heads", 4}, {"bias", true}})}) {
    const auto config = with("falcon", change);
    const auto read = hugging_face::parse_hugging_face_config(config.dump(), "config.json", mappings);
    const auto recipe = recipe::imported_recipe(hugging_face::recipe_with(read.model_config), {}, {});
    const auto out = hugging_face::write_hugging_face_config(hugging_face::whole_model_config(recipe, 96), "falcon",
                                                             DType::float32, "", mappings);
    EXPECT_EQ(layers_of(LibraryJson::parse(out)), layers_of(config)) << out;
  }
}

TEST(Falcon, SequentialLayersWithGroupsHaveNoFalcon) {
  const options::Mappings mappings;
  const auto read = hugging_face::parse_hugging_face_config(with("falcon_new", LibraryJson::object()).dump(),
                                                            "config.json", mappings);
  const auto recipe = recipe::imported_recipe(hugging_face::recipe_with(read.model_config),
                                              {"model_config.use_parallel_residual=false"}, {});
  const auto story = story_of([&] { hugging_face::family_that_fits(recipe, 96, {"falcon"}, {}, mappings); });
  EXPECT_NE(story.find("num_query_groups is 2"), std::string::npos) << story;
}

TEST(Bloom, KeysOfPublishedFilesChangeNothing) {
  const options::Mappings mappings;
  const auto published = with("bloom", {{"n_inner", nullptr},
                                        {"offset_alibi", 100},
                                        {"seq_length", 4096},
                                        {"attention_softmax_in_fp32", true},
                                        {"masked_softmax_fusion", true},
                                        {"skip_bias_add", true}});
  EXPECT_EQ(story_of([&] { hugging_face::parse_hugging_face_config(published.dump(), "config.json", mappings); }),
            "no error");
  auto renamed = with("bloom", {{"n_embed", 48}, {"num_hidden_layers", 2}, {"num_attention_heads", 6}});
  for (const char* key : {"hidden_size", "n_layer", "n_head"}) renamed.erase(key);
  const auto read = hugging_face::parse_hugging_face_config(renamed.dump(), "config.json", mappings).model_config;
  EXPECT_EQ(text(*read.find("hidden_size"), *read.find("num_layers"), *read.find("num_attention_heads")), "4826");
}

TEST(GptOss, WhatIsNotImplementedIsRefusedByName) {
  const options::Mappings mappings;
  const auto refused = [&](const char* words, const LibraryJson& change) {
    const auto story = story_of(
        [&] { hugging_face::parse_hugging_face_config(with("gpt_oss", change).dump(), "config.json", mappings); });
    EXPECT_NE(story.find(words), std::string::npos) << change << " " << story;
  };
  refused("quantization_config", {{"quantization_config", {{"quant_method", "mxfp4"}}}});
  refused("swiglu_alpha is 1.5", {{"swiglu_alpha", 1.5}});
  refused("neither rope_parameters nor rope_scaling", {{"rope_parameters", nullptr}});
  refused("clever_new_thing is 3", {{"clever_new_thing", 3}});
}

/// Where a key is left out, Transformers takes the pattern of windows that begins with one.
TEST(GptOss, LayersWithoutAListAlternate) {
  const options::Mappings mappings;
  const auto config = with("gpt_oss", {{"layer_types", nullptr}, {"num_hidden_layers", 4}});
  const auto read = hugging_face::parse_hugging_face_config(config.dump(), "config.json", mappings).model_config;
  ASSERT_NE(read.find("layer_types"), nullptr);
  std::string words;
  for (const auto& item : read.find("layer_types")->items) words += item.scalar[0];
  EXPECT_EQ(words, "sfsf");
}

TEST(GptOss, YarnRoundsItsRangeUnlessTruncateIsFalse) {
  const options::Mappings mappings;
  auto config = with("gpt_oss", LibraryJson::object());
  const auto rounds = [&] {
    const auto read = hugging_face::parse_hugging_face_config(config.dump(), "config.json", mappings).model_config;
    const auto* value = read.find("yarn_correction_range_round_to_int");
    return value == nullptr ? "default" : value->scalar;
  };
  EXPECT_EQ(rounds(), "false");
  config["rope_parameters"].erase("truncate");
  EXPECT_EQ(rounds(), "default");
  config["rope_parameters"]["truncate"] = true;
  EXPECT_EQ(rounds(), "true");
}

}  // namespace
}  // namespace tessera
