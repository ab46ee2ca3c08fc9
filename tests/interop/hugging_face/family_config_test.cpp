// What config.json of a family says beside the sizes: numbers, windows, rotary positions, forms that are refused.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/interop/hugging_face/config_of_family.h"

namespace tessera {
namespace {

/// What a config.json says goes out as it came in, whatever its numbers.
TEST_F(ExpertConfig, NumbersAndWindowsOfOtherFamiliesGoOutAsTheyCameIn) {
  const auto granite = goes_out("granite", [](LibraryJson& c) {
    c["logits_scaling"] = 6.0, c["attention_multiplier"] = 0.0009765625, c["residual_multiplier"] = 0.22;
  });
  EXPECT_EQ(granite["logits_scaling"], 6.0);
  EXPECT_EQ(granite["attention_multiplier"], 0.0009765625);
  EXPECT_EQ(granite["residual_multiplier"], 0.22);
  const auto gemma2 = goes_out(
      "gemma2", [](LibraryJson& c) { c["attn_logit_softcapping"] = nullptr, c["final_logit_softcapping"] = nullptr; });
  EXPECT_TRUE(gemma2["attn_logit_softcapping"].is_null() && gemma2["final_logit_softcapping"].is_null()) << gemma2;
  const auto whole = std::vector<std::string>(3, "full_attention");
  EXPECT_EQ(goes_out("gemma3_text", [&](LibraryJson& c) { c["layer_types"] = whole; })["layer_types"], whole);
  EXPECT_TRUE(says(changed("glm4", [](LibraryJson& c) { c["rope_parameters"]["partial_rotary_factor"] = 0.6; }),
                   "of the 16 channels of a head are 9 with rotary positions; an even number was expected"));
}

/// Dynamic scaling begins beyond max_position_embeddings, so that it is no option here.
TEST_F(ExpertConfig, DynamicScalingOfInternLM2GoesOutAsItCameIn) {
  const auto internlm2 = [&](const LibraryJson& scaling, const std::vector<std::string>& sets = {}) {
    auto json = config_of("llama");
    json["model_type"] = "internlm2";
    json["bias"] = false;
    json["rope_theta"] = 10000.0;
    json["rope_scaling"] = scaling;
    json.erase("rope_parameters");
    const auto recipe = recipe::imported_recipe(hugging_face::recipe_with(read(json)), sets, {});
    return LibraryJson::parse(hugging_face::write_hugging_face_config(
        hugging_face::whole_model_config(recipe, 96), "internlm2", DType::float32, json.dump(), mappings));
  };
  const LibraryJson dynamic = {{"type", "dynamic"}, {"factor", 2.0}};
  EXPECT_EQ(internlm2(dynamic)["rope_scaling"], dynamic);
  EXPECT_FALSE(internlm2(nullptr).contains("rope_scaling"));
  const auto linear = internlm2(dynamic, {"model_config.rotary_seq_len_interpolation_factor=4"})["rope_scaling"];
  EXPECT_EQ(linear["factor"], 4.0);
  EXPECT_FALSE(linear.dump().find("dynamic") != std::string::npos) << linear;
}

TEST_F(ExpertConfig, DropoutIsNotAppliedToTheEmbeddingWhereTransformersDoesNot) {
  for (const auto& [family, key] : {std::pair("bloom", "hidden_dropout"), std::pair("phi3", "resid_pdrop")}) {
    auto json = config_of(family);
    json[key] = 0.25;
    const auto config = read(json);
    EXPECT_EQ(said(config, "hidden_dropout_rate"), "0.25") << family;
    EXPECT_EQ(said(config, "embedding_dropout_rate"), "0") << family;
  }
}

TEST_F(ExpertConfig, TheRowOfThePaddingTokenIsThatOfTransformers) {
  const auto padding = [&](const std::string& family, const LibraryJson& token) {
    auto json = config_of(family);
    json["pad_token_id"] = token;
    return said(read(json), "embedding_padding_token");
  };
  for (const auto* family : {"llama", "mistral", "mixtral", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "deepseek_v2",
                             "deepseek_v3", "gpt_oss", "gemma"}) {
    EXPECT_EQ(padding(family, 7), "7") << family;
    EXPECT_EQ(padding(family, nullptr), "nothing") << family;
    EXPECT_EQ(goes_out(family, [](LibraryJson& c) { c["pad_token_id"] = 7; })["pad_token_id"], 7) << family;
  }
  EXPECT_EQ(padding("llama", -1), "nothing");
  EXPECT_EQ(goes_out("llama", [](LibraryJson& c) { c["pad_token_id"] = -1; })["pad_token_id"], -1);
  EXPECT_EQ(padding("gpt2", 7), "nothing");
}

/// Transformers 4 takes rope_scaling with three keys alone, 5 takes it before rope_parameters.
TEST_F(ExpertConfig, LongropeGoesOutInTheSpellingsOfBothVersions) {
  const auto plain = goes_out("phi3_longrope", [](LibraryJson&) {});
  const LibraryJson three = {{"type", "longrope"}, {"short_factor", {1.0, 1.5, 2.5}}, {"long_factor", {1.5, 4.0, 9.0}}};
  EXPECT_EQ(plain["rope_scaling"], three);
  EXPECT_FALSE(plain["rope_parameters"].contains("attention_factor"));
  const auto factor =
      goes_out("phi3_longrope", [](LibraryJson& c) { c["rope_parameters"]["attention_factor"] = 1.75; });
  EXPECT_EQ(factor["rope_parameters"]["attention_factor"], 1.75);
  EXPECT_EQ(factor["rope_scaling"]["attention_factor"], 1.75);
  const auto four = config_of("phi3_longrope");
  auto older = four;
  older.erase("rope_parameters");
  older["partial_rotary_factor"] = 0.75, older["rope_theta"] = 10000.0, older["rope_scaling"] = three;
  for (const auto* type : {"longrope", "su"}) {
    older["rope_scaling"]["type"] = type;
    EXPECT_EQ(options_in(read(older)), options_in(read(four))) << type;
  }
  // Without the key the original maximum is 4096; the factor of cosines and sines follows from `factor`.
  older.erase("original_max_position_embeddings");
  older["rope_scaling"]["factor"] = 16.0;
  EXPECT_EQ(said(read(older), "rope_scaling_original_max_position_embeddings"), "4096");
  EXPECT_EQ(said(read(older), "rope_scaling_attention_factor").substr(0, 7), "1.15470");
  for (const auto* type : {"yarn", "linear", "llama3"})
    EXPECT_TRUE(says(changed("phi3_longrope",
                             [&](LibraryJson& c) {
                               c["rope_parameters"] = {{"rope_type", type},
                                                       {"rope_theta", 1e4},
                                                       {"factor", 2.0},
                                                       {"low_freq_factor", 1.0},
                                                       {"high_freq_factor", 4.0}};
                             }),
                     "this family has default and longrope"))
        << type;
}

TEST_F(ExpertConfig, Gemma3IsWrittenWithTheScalingOfItsFullLayers) {
  const LibraryJson llama3 = {{"rope_type", "llama3"},   {"rope_theta", 20000.0},
                              {"factor", 4.0},           {"low_freq_factor", 1.0},
                              {"high_freq_factor", 4.0}, {"original_max_position_embeddings", 16}},
                    yarn = {{"rope_type", "yarn"},
                            {"rope_theta", 20000.0},
                            {"factor", 4.0},
                            {"beta_fast", 16.0},
                            {"beta_slow", 2.0},
                            {"attention_factor", 1.5},
                            {"original_max_position_embeddings", 16}};
  for (const auto& scaling : {llama3, yarn}) {
    const auto out = goes_out("gemma3_text", [&](LibraryJson& c) { c["rope_parameters"]["full_attention"] = scaling; });
    EXPECT_EQ(out["rope_parameters"]["full_attention"], scaling);
    EXPECT_EQ(out["rope_parameters"]["sliding_attention"]["rope_type"], "default");
  }
}

TEST_F(ExpertConfig, FormsOfOptThatOptionsDoNotDescribeAreRefusedByName) {
  EXPECT_TRUE(says(changed("opt", [](LibraryJson& c) { c["do_layer_norm_before"] = false; }),
                   "do_layer_norm_before is false: norms behind attention and feed-forward network are not supported"));
  EXPECT_TRUE(says(changed("opt", [](LibraryJson& c) { c["word_embed_proj_dim"] = 16; }),
                   "word_embed_proj_dim is 16, but hidden_size is 32: projections of the embedding are not supported"));
  EXPECT_TRUE(says(changed("opt", [](LibraryJson& c) { c["layerdrop"] = 0.1; }), "layers are not left out at random"));
  const auto plain = goes_out("opt", [](LibraryJson& c) {
    c["enable_bias"] = false, c["_remove_final_layer_norm"] = true, c["pad_token_id"] = nullptr;
  });
  EXPECT_EQ(plain["enable_bias"], false);
  EXPECT_EQ(plain["_remove_final_layer_norm"], true);
  EXPECT_TRUE(plain["pad_token_id"].is_null());
}

}  // namespace
}  // namespace tessera
