// A Qwen2-VL of Transformers: its config.json in two spellings, and the names and layouts of its weights.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "framework/interop/hugging_face/family.h"
#include "framework/interop/hugging_face/hugging_face.h"
#include "framework/interop/hugging_face/hugging_face_export.h"
#include "framework/interop/hugging_face/merge_check.h"
#include "framework/recipe/imported_recipe.h"
#include "tests/interop/hugging_face/tiny_qwen2_vl.h"
#include "tests/own_folder.h"
#include "tests/story.h"

namespace tessera {
namespace {

using LibraryJson = nlohmann::json;

class VisionFolder : public InOwnFolder {
 protected:
  VisionFolder() { tiny_.write("hf"); }
  hugging_face::HuggingFaceConfig read(const std::string& words) const {
    return hugging_face::parse_hugging_face_config(words, "config.json", mappings_);
  }
  /// The keys of the text model in text_config, as Transformers 5 writes them.
  LibraryJson nested() const {
    auto json = LibraryJson::parse(tiny_.config());
    for (const char* key : {"hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
                            "num_key_value_heads", "vocab_size", "max_position_embeddings"}) {
      json["text_config"][key] = json[key];
      json.erase(key);
    }
    json["text_config"]["model_type"] = "qwen2_vl_text";
    json["text_config"]["rope_parameters"] = {
        {"mrope_section", {1, 1, 0}}, {"rope_theta", 1000000.0}, {"rope_type", "default"}};
    json["vision_config"]["rope_parameters"] = {{"rope_theta", 10000}, {"rope_type", "axial"}};
    json["vision_config"]["model_type"] = "qwen2_vl_vision";
    json.erase("rope_scaling");
    json.erase("rope_theta");
    return json;
  }
  static std::vector<float> floats(const hugging_face::HuggingFaceModel& model, const std::string& name) {
    std::vector<float> all(static_cast<std::size_t>(model.shape(name).elements()));
    model.read(name, std::span(all));
    return all;
  }

  TinyQwen2Vl tiny_;
  options::Mappings mappings_;
};

TEST_F(VisionFolder, BothSpellingsOfTheConfigurationAreTheSameModel) {
  const auto flat = read(tiny_.config()), five = read(nested().dump());
  EXPECT_EQ(text(flat.model_config), text(five.model_config));
  EXPECT_EQ(flat.model_config.find("position_embedding_type")->scalar, "mrope");
  EXPECT_EQ(text(*flat.model_config.find("mrope_section")), "[1, 1, 0]");
  EXPECT_EQ(flat.model_config.at("vision_config.ffn_hidden_size")->scalar, "32");
  EXPECT_EQ(flat.model_config.at("vision_config.image_token_id")->scalar, "20");
  // What is saved since Transformers 4.45 says default where it said mrope.
  auto saved = LibraryJson::parse(tiny_.config());
  saved["rope_scaling"]["type"] = saved["rope_scaling"]["rope_type"] = "default";
  EXPECT_EQ(text(read(saved.dump()).model_config), text(flat.model_config));
}

TEST_F(VisionFolder, WhatTheTowerCannotExpressIsRefusedByItsKey) {
  const auto story = [&](const char* pointer, const LibraryJson& value) {
    auto json = nested();
    json[LibraryJson::json_pointer(pointer)] = value;
    return story_of([&] { read(json.dump()); });
  };
  EXPECT_TRUE(says(story("/text_config/rope_parameters/rope_type", "yarn"), "rope_parameters.rope_type is yarn"));
  EXPECT_TRUE(says(story("/text_config/rope_parameters/mrope_section", 3), "mrope_section is 3: a list of numbers"));
  EXPECT_TRUE(says(story("/vision_config/hidden_size", 20), "both mean hidden_size"));
  EXPECT_TRUE(says(story("/hidden_size", 20), "both mean hidden_size"));
  EXPECT_TRUE(says(story("/vision_config/fullatt_block_indexes", {1, 2}), "vision_config.fullatt_block_indexes"));
  EXPECT_TRUE(says(story("/vision_config/num_heads", 3), "num_attention_heads"));
  auto without = nested();
  without["text_config"].erase("rope_parameters");
  EXPECT_TRUE(says(story_of([&] { read(without.dump()); }), "nothing in it says mrope_section"));
}

TEST_F(VisionFolder, ProjectionsOfTheTowerAreAHeadAtATimeAndPatchesAreFlat) {
  const hugging_face::HuggingFaceModel model("hf", mappings_);
  const checkpoint::SafetensorsReader files("hf");
  EXPECT_EQ(model.shape("vision_model.patch_embed.weight"), (Shape{16, 24}));
  const auto ours = floats(model, "vision_model.decoder.layers.1.self_attention.linear_qkv.bias");
  const auto theirs = files.tensor("visual.blocks.1.attn.qkv.bias");
  std::vector<float> given(48);
  std::memcpy(given.data(), theirs.raw().data(), theirs.bytes());
  for (std::size_t head = 0; head < 2; ++head)
    for (std::size_t part = 0; part < 3; ++part)
      for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(ours[24 * head + 8 * part + i], given[16 * part + 8 * head + i]);
  EXPECT_EQ(model.shape("decoder.layers.3.self_attention.linear_qkv.weight"), (Shape{32, 16}));
}

TEST_F(VisionFolder, TheNamesOfTheModulesOfTransformersAreReadToo) {
  const checkpoint::SafetensorsReader files("hf");
  std::map<std::string, Tensor> renamed;
  for (const auto& name : files.names()) {
    const auto in_text = name.rfind("model.", 0) == 0 ? "model.language_model." + name.substr(6) : name;
    renamed.emplace(name.rfind("visual.", 0) == 0 ? "model." + name : in_text, files.tensor(name));
  }
  make_folder("modules");
  write("modules/config.json", nested().dump());
  checkpoint::write_safetensors("modules/model.safetensors", renamed);
  const hugging_face::HuggingFaceModel one("hf", mappings_), other("modules", mappings_);
  EXPECT_EQ(one.names(), other.names());
  for (const auto& name : one.names()) EXPECT_EQ(floats(one, name), floats(other, name)) << name;
}

TEST_F(VisionFolder, WhatIsWrittenForTransformersIsReadBackAsTheSameModelAndWeights) {
  const hugging_face::HuggingFaceModel model("hf", mappings_);
  const auto recipe = recipe::imported_recipe(model.recipe(), {}, {});
  const auto all = hugging_face::hugging_face_families(mappings_);
  EXPECT_EQ(hugging_face::family_that_fits(recipe, tiny_.vocabulary, all, {}, mappings_), "qwen2_vl");
  const auto whole = hugging_face::whole_model_config(recipe, tiny_.vocabulary);
  hugging_face::HuggingFaceExport how;
  how.family = "qwen2_vl";
  auto carried = nested();
  carried["text_config"]["eos_token_id"] = 7;
  how.files["config.json"] =
      hugging_face::write_hugging_face_config(whole, "qwen2_vl", DType::float32, carried.dump(), mappings_);
  EXPECT_TRUE(hugging_face::write_hugging_face("out", whole, model, how, mappings_).empty());
  const auto written = LibraryJson::parse(read_file("out/config.json"));
  EXPECT_EQ(written["rope_scaling"], (LibraryJson{{"type", "mrope"}, {"mrope_section", {1, 1, 0}}}));
  EXPECT_EQ(written["vision_config"]["mlp_ratio"], 2);
  EXPECT_EQ(written["vision_end_token_id"], 23);
  EXPECT_EQ(written["eos_token_id"], 7);
  const checkpoint::SafetensorsReader before("hf"), after("out");
  EXPECT_EQ(before.names(), after.names());
  for (const auto& name : before.names()) {
    ASSERT_EQ(before.shape(name), after.shape(name)) << name;
    const auto a = before.tensor(name), b = after.tensor(name);
    EXPECT_EQ(std::memcmp(a.raw().data(), b.raw().data(), a.bytes()), 0) << name;
  }
}

/// What `tessera merge` compares must depend on all weights, those of the tower too.
TEST_F(VisionFolder, RotaryOptionsThatTheFamilyCannotSayAreNotLeftOut) {
  const hugging_face::HuggingFaceModel model("hf", mappings_);
  for (const std::string option : {"rotary_interleaved", "rotary_seq_len_interpolation_factor"}) {
    const auto value = option == "rotary_interleaved" ? "true" : "2";
    const auto recipe = recipe::imported_recipe(model.recipe(), {text("model_config.", option, "=", value)}, {});
    const auto story =
        story_of([&] { hugging_face::family_that_fits(recipe, tiny_.vocabulary, {"qwen2_vl"}, {}, mappings_); });
    EXPECT_TRUE(says(story, text(option, " is ", value, ", there it would be"))) << story;
  }
}

TEST_F(VisionFolder, TheLogitsThatAreComparedAfterAMergeDependOnEveryTower) {
  const hugging_face::HuggingFaceModel model("hf", mappings_);
  for (const std::int64_t longest : {32, 4}) {
    auto tree = model.recipe();
    auto recipe = recipe::imported_recipe(
        tree, {text("model_config.seq_length=", longest), text("model_config.max_position_embeddings=", longest)}, {});
    const auto trained = recipe::without_weights("hf", recipe, nullptr);
    kernels::Threads threads(1);
    trained.weights->initialise(threads, 1);
    trained.weights->weights_changed();
    const auto logits = hugging_face::fixed_logits(trained, threads);
    EXPECT_EQ(logits.size(), static_cast<std::size_t>(2 * longest * tiny_.vocabulary));
    EXPECT_EQ(hugging_face::difference(logits, hugging_face::fixed_logits(trained, threads)), 0);
    for (auto* parameter : trained.model->parameters()) {
      if (!parameter->name.ends_with("linear_fc1.weight") && !parameter->name.ends_with("linear_qkv.weight")) continue;
      auto values = parameter->leaf.value.floats();
      const std::vector<float> before(values.begin(), values.end());
      for (auto& value : values) value = -value;
      trained.weights->weights_changed();
      EXPECT_GT(hugging_face::difference(logits, hugging_face::fixed_logits(trained, threads)),
                hugging_face::most_of_merge)
          << parameter->name;
      std::ranges::copy(before, values.begin());
      trained.weights->weights_changed();
    }
  }
}

}  // namespace
}  // namespace tessera
