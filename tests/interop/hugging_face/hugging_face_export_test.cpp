#include "framework/interop/hugging_face/hugging_face_export.h"

#include <cmath>
#include <deque>
#include <limits>
#include <nlohmann/json.hpp>

#include "framework/base/files.h"
#include "tests/interop/hugging_face/recorded.h"
#include "tests/own_folder.h"
#include "tests/story.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using LibraryJson = nlohmann::json;

class HuggingFaceExportTest : public InOwnFolder {
 protected:
  options::Mappings mappings;

  /// The model of `folder` written anew as `out`.
  std::vector<std::string> write_again(const fs::path& folder, const fs::path& out,
                                       hugging_face::HuggingFaceExport how = {}) {
    const hugging_face::HuggingFaceModel model(folder, mappings);
    how.family = model.family();
    return hugging_face::write_hugging_face(out, model.model_config(), model, how, mappings);
  }

  /// A case with its tensors changed, as the folder "changed".
  void write_changed(const std::string& of, const std::function<void(std::map<std::string, Tensor>&)>& change,
                     const std::function<void(LibraryJson&)>& change_config = {}) {
    const checkpoint::SafetensorsReader file(models / of / "hf");
    std::map<std::string, Tensor> tensors;
    for (const auto& name : file.names()) tensors[name] = file.tensor(name);
    change(tensors);
    auto config = LibraryJson::parse(read_file(models / of / "hf/config.json"));
    if (change_config) change_config(config);
    fs::create_directories("changed");
    write("changed/config.json", config.dump());
    checkpoint::write_safetensors("changed/model.safetensors", tensors);
  }
  std::string story_of_changed(const std::string& of,
                               const std::function<void(std::map<std::string, Tensor>&)>& change) {
    write_changed(of, change);
    return story_of([&] {
      const hugging_face::HuggingFaceModel model("changed", mappings);
      for (const auto& name : model.names()) {
        std::vector<float> all(static_cast<std::size_t>(model.shape(name).elements()));
        model.read(name, all);
      }
    });
  }

  /// Elements that are changed, kept alive.
  Tensor copy_of(const Tensor& tensor) {
    auto& bytes = memory_.emplace_back(tensor.raw().begin(), tensor.raw().end());
    return {std::span(bytes), tensor.dtype(), tensor.shape()};
  }
  Tensor zeros(DType type, const Shape& shape) {
    auto& bytes = memory_.emplace_back(static_cast<std::size_t>(shape.elements()) * size_of(type));
    return {std::span(bytes), type, shape};
  }

 private:
  std::deque<std::vector<std::byte>> memory_;
};

void expect_same_tensors(const fs::path& a, const fs::path& b) {
  const checkpoint::SafetensorsReader x(a), y(b);
  EXPECT_EQ(x.names(), y.names());
  for (const auto& name : x.names()) {
    EXPECT_EQ(x.dtype(name), y.dtype(name)) << name;
    EXPECT_EQ(x.shape(name), y.shape(name)) << name;
    const auto p = x.tensor(name).raw(), q = y.tensor(name).raw();
    EXPECT_TRUE(std::equal(p.begin(), p.end(), q.begin(), q.end())) << name;
  }
}

/// A reward model is a classifier with one label: its head is score.weight, in place of the output layer.
TEST_F(HuggingFaceExportTest, ARewardModelIsReadAndWrittenAsTheClassifierOfItsFamily) {
  for (const std::string name : {"llama", "gpt2"}) {
    const auto head = name == "llama" ? "lm_head.weight" : "";
    write_changed(
        name,
        [&](auto& tensors) {
          tensors.erase(head);
          const auto hidden = tensors.at(name == "llama" ? "model.norm.weight" : "transformer.ln_f.weight").shape()[0];
          tensors["score.weight"] = zeros(DType::float32, {1, hidden});
          for (std::int64_t i = 0; i < hidden; ++i)
            tensors["score.weight"].floats()[static_cast<std::size_t>(i)] = static_cast<float>(i) / 7;
        },
        [&](LibraryJson& config) {
          config["architectures"] = {name == "llama" ? "LlamaForSequenceClassification"
                                                     : "GPT2ForSequenceClassification"};
          config["id2label"] = {{"0", "LABEL_0"}};
        });
    const hugging_face::HuggingFaceModel model("changed", mappings);
    EXPECT_TRUE(model.has("score.weight") && !model.has("output_layer.weight"));
    EXPECT_EQ(text(*model.model_config().find("score_head")), "true");
    write_again("changed", name + "_out");
    expect_same_tensors("changed", name + "_out");
    const auto written = LibraryJson::parse(
        hugging_face::write_hugging_face_config(model.model_config(), name, DType::float32, "", mappings));
    EXPECT_EQ(written.at("architectures")[0],
              name == "llama" ? "LlamaForSequenceClassification" : "GPT2ForSequenceClassification");
    EXPECT_EQ(written.at("id2label").size(), 1U);
  }
  write_changed(
      "llama", [](auto&) {}, [](LibraryJson& config) { config["architectures"] = {"LlamaForSequenceClassification"}; });
  EXPECT_NE(story_of([&] { const hugging_face::HuggingFaceModel model("changed", mappings); }).find("2 labels"),
            std::string::npos);
}

TEST_F(HuggingFaceExportTest, WhatCameInGoesOutByteForByte) {
  for (const char* name : {"gpt2", "llama"}) {
    EXPECT_TRUE(write_again(models / name / "hf", name).empty());
    expect_same_tensors(models / name / "hf", name);
  }
}

TEST_F(HuggingFaceExportTest, TheFolderMayBeGivenWithASlashAtItsEnd) {
  fs::create_directory("empty");
  for (const char* out : {"new/", "empty/"}) {
    write_again(models / "gpt2/hf", out);
    expect_same_tensors(models / "gpt2/hf", out);
    EXPECT_EQ(list_folder(out).size(), 1U) << out;
  }
  EXPECT_EQ(list_folder(".").size(), 2U);
}

TEST_F(HuggingFaceExportTest, SeveralFilesHaveAnIndexAndHoldTheSame) {
  hugging_face::HuggingFaceExport how;
  how.shard_bytes = 60'000;
  write_again(models / "llama/hf", "out", how);
  const auto index = LibraryJson::parse(read_file("out/model.safetensors.index.json"));
  EXPECT_FALSE(fs::exists("out/model.safetensors"));
  EXPECT_EQ(index["weight_map"]["model.embed_tokens.weight"], "model-00001-of-00008.safetensors");
  EXPECT_EQ(index["weight_map"]["lm_head.weight"], "model-00008-of-00008.safetensors");
  std::uint64_t bytes = 0;
  const checkpoint::SafetensorsReader all("out");
  for (const auto& tensor : all.names()) bytes += all.tensor(tensor).bytes();
  EXPECT_EQ(index["metadata"]["total_size"], bytes);
  expect_same_tensors(models / "llama/hf", "out");
  for (const auto& entry : fs::directory_iterator("out")) EXPECT_LT(fs::file_size(entry), 70'000U) << entry.path();
}

TEST_F(HuggingFaceExportTest, AnotherElementTypeIsRoundedToTheNearest) {
  hugging_face::HuggingFaceExport how;
  how.dtype = DType::bfloat16;
  write_again(models / "llama/hf", "out", how);
  const checkpoint::SafetensorsReader before(models / "llama/hf"), after("out");
  for (const auto& name : before.names()) {
    ASSERT_EQ(after.dtype(name), DType::bfloat16);
    const auto x = before.tensor(name).floats();
    const auto y = after.tensor(name).as<bfloat16>();
    for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(bfloat16(x[i]).bits, y[i].bits) << name;
  }
}

TEST_F(HuggingFaceExportTest, PaddedRowsOfTheVocabularyAreLeftOutAndThatIsSaid) {
  hugging_face::HuggingFaceExport how;
  how.vocabulary = 200;
  const auto notes = write_again(models / "llama/hf", "out", how);
  ASSERT_EQ(notes.size(), 2U);
  EXPECT_TRUE(says(notes[0], "embedding.word_embeddings.weight: rows 200 to")) << notes[0];
  EXPECT_TRUE(says(notes[1], "output_layer.weight")) << notes[1];
  const checkpoint::SafetensorsReader before(models / "llama/hf"), after("out");
  EXPECT_EQ(after.shape("lm_head.weight")[0], 200);
  const auto x = before.tensor("lm_head.weight").floats(), y = after.tensor("lm_head.weight").floats();
  EXPECT_TRUE(std::equal(y.begin(), y.end(), x.begin()));
}

TEST_F(HuggingFaceExportTest, RowsThatAreMissingFromTheVocabularyBecomeTheMeanAndThatIsSaid) {
  const hugging_face::HuggingFaceModel model(models / "gpt2/hf", mappings);
  const std::string name = "embedding.word_embeddings.weight";
  std::vector<checkpoint::TensorRange> wanted;
  std::deque<std::vector<float>> memory;
  const auto rows = model.shape(name)[0];
  for (const auto& one : model.names()) {
    auto shape = model.shape(one);
    if (one == name) shape = Shape{rows + 3, shape[1]};
    auto& values = memory.emplace_back(static_cast<std::size_t>(shape.elements()));
    wanted.push_back(checkpoint::whole(one, Tensor(std::span(values), shape),
                                       one == name ? ParameterRole::word_embedding : ParameterRole::matrix));
  }
  const auto notes = checkpoint::load_all(model, wanted);
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_TRUE(says(notes[0], text(rows, " rows kept, 3 rows of padding filled with their mean"))) << notes[0];
  const auto all = wanted[0].tensor.floats();
  double mean = 0;
  for (std::int64_t row = 0; row < rows; ++row) mean += all[static_cast<std::size_t>(row * 48 + 5)];
  EXPECT_FLOAT_EQ(all[static_cast<std::size_t>((rows + 2) * 48 + 5)],
                  static_cast<float>(mean / static_cast<double>(rows)));

  wanted[0].global_shape = Shape{rows - 2, 48};
  const auto story = story_of([&] { checkpoint::must_fit(model, wanted); });
  EXPECT_TRUE(says(story, text("its vocabulary has ", rows, " rows and the model here ", rows - 2))) << story;
  EXPECT_TRUE(says(story, "refused, for tokens may be among the 2 rows")) << story;
}

TEST_F(HuggingFaceExportTest, TheBiasOfTheOutputLayerHasARowForEachToken) {
  hugging_face::HuggingFaceExport how;
  how.vocabulary = 90;
  how.family = "phi";
  const auto notes = write_again(families / "phi", "out", how);
  ASSERT_EQ(notes.size(), 3U);
  EXPECT_TRUE(says(notes[2], "output_layer.bias: rows 90 to 95 are padding and left out")) << notes[2];
  const checkpoint::SafetensorsReader before(families / "phi"), after("out");
  const auto x = before.tensor("lm_head.bias").raw(), y = after.tensor("lm_head.bias").raw();
  ASSERT_EQ(after.shape("lm_head.bias"), Shape({90}));
  EXPECT_TRUE(std::equal(y.begin(), y.end(), x.begin()));

  const hugging_face::HuggingFaceModel model(families / "phi", mappings);
  std::vector<float> values(99), given(96);
  model.read("output_layer.bias", Tensor(std::span(given), Shape{96}));
  const auto wanted =
      checkpoint::whole("output_layer.bias", Tensor(std::span(values), Shape{99}), ParameterRole::output_bias);
  EXPECT_TRUE(says(checkpoint::read_padded(model, wanted), "96 rows kept, 3 rows of padding filled with their mean"));
  double mean = 0;
  for (std::size_t i = 0; i < 96; ++i) {
    EXPECT_EQ(values[i], given[i]) << i;
    mean += given[i] / 96.0;
  }
  for (std::size_t i = 96; i < 99; ++i) EXPECT_NEAR(values[i], mean, 1e-6) << i;
}

TEST_F(HuggingFaceExportTest, WeightsThatAreNotWantedOrMissingAreNamed) {
  const hugging_face::HuggingFaceModel model(models / "gpt2/hf", mappings);
  std::vector<float> one(48);
  const std::vector wanted = {
      checkpoint::whole("decoder.final_layernorm.weight", Tensor(std::span(one), Shape{48})),
      checkpoint::whole("decoder.layers.9.input_layernorm.weight", Tensor(std::span(one), Shape{48})),
      checkpoint::whole("decoder.final_layernorm.bias", Tensor(std::span(one), Shape{6, 8}))};
  const auto story = story_of([&] { checkpoint::must_fit(model, wanted); });
  EXPECT_TRUE(says(story, "decoder.layers.9.input_layernorm.weight: is missing")) << story;
  EXPECT_TRUE(says(story, "decoder.final_layernorm.bias: is [48]; expected [6, 8]")) << story;
  EXPECT_TRUE(says(story, "embedding.word_embeddings.weight: is there, but the model here has no such weight"))
      << story;
}

TEST_F(HuggingFaceExportTest, AWeightThatIsNotFiniteIsNamedWithItsPlace) {
  const auto poisoned = [&](float value) {
    return story_of_changed("llama", [&](auto& tensors) {
      auto& tensor = tensors["model.layers.1.mlp.up_proj.weight"];
      tensor = copy_of(tensor);
      tensor.floats()[48 * 3 + 5] = value;
    });
  };
  const auto story = poisoned(std::numeric_limits<float>::quiet_NaN());
  EXPECT_TRUE(says(story, "tensor 'model.layers.1.mlp.up_proj.weight': element [3, 5] is NaN")) << story;
  EXPECT_TRUE(says(poisoned(-std::numeric_limits<float>::infinity()), "element [3, 5] is infinite"));
}

TEST_F(HuggingFaceExportTest, WeightsTooLargeForTheTypeAskedForAreRefused) {
  write_changed("llama", [&](auto& tensors) {
    auto& tensor = tensors["model.norm.weight"];
    tensor = copy_of(tensor);
    tensor.floats()[7] = 1e6F;
  });
  hugging_face::HuggingFaceExport how;
  how.dtype = DType::float16;
  const auto story = story_of([&] { write_again("changed", "out", how); });
  EXPECT_TRUE(says(story, "'decoder.final_layernorm.weight' as float16: element [7] is infinite")) << story;
  EXPECT_FALSE(fs::exists("out"));
  EXPECT_FALSE(fs::exists("out_tmp"));
}

TEST_F(HuggingFaceExportTest, AFolderUnderTheNameOfUnfinishedFilesIsNotDeleted) {
  fs::create_directory("out_tmp");
  write("out_tmp/notes", "of the user");
  const auto story = story_of([&] { write_again(models / "llama/hf", "out", {}); });
  EXPECT_TRUE(says(story, "out_tmp: is there already")) << story;
  EXPECT_EQ(read_file("out_tmp/notes"), "of the user");
  fs::remove_all("out_tmp");
  write_again(models / "llama/hf", "out/", {});  // the same folder with a slash
  EXPECT_TRUE(fs::exists("out/model.safetensors"));
}

TEST_F(HuggingFaceExportTest, TensorsOfIntegersAreNoWeights) {
  const auto story =
      story_of_changed("llama", [&](auto& tensors) { tensors["model.norm.weight"] = zeros(DType::int64, Shape{48}); });
  EXPECT_TRUE(says(story, "tensor 'model.norm.weight' holds I64; weights are F32, BF16, F16 or F64")) << story;
}

TEST_F(HuggingFaceExportTest, NamesThatDifferByAPrefixAreRefusedWithTheHint) {
  const auto renamed = [&](const std::string& of, const std::function<std::string(const std::string&)>& rename) {
    return story_of_changed(of, [&](auto& tensors) {
      std::map<std::string, Tensor> all;
      for (const auto& [name, tensor] : tensors) all[rename(name)] = tensor;
      tensors = all;
    });
  };
  const auto more = renamed("llama", [](const std::string& name) { return "base_model.model." + name; });
  EXPECT_TRUE(says(more, "all that is missing is there with 'base_model.model.' in front; take that away")) << more;
  const auto less =
      renamed("llama", [](const std::string& name) { return name.rfind("model.", 0) == 0 ? name.substr(6) : name; });
  EXPECT_TRUE(says(less, "all that is missing is there without 'model.' in front; put that before the names")) << less;
}

TEST_F(HuggingFaceExportTest, ACopyOfTheTiedEmbeddingMustBeOne) {
  write_changed("gpt2", [&](auto& tensors) { tensors["lm_head.weight"] = tensors["transformer.wte.weight"]; });
  EXPECT_NO_THROW(hugging_face::HuggingFaceModel("changed", mappings));
  const auto story = story_of_changed("gpt2", [&](auto& tensors) {
    tensors["lm_head.weight"] = copy_of(tensors["transformer.wte.weight"]);
    tensors["lm_head.weight"].floats()[0] += 1;
  });
  EXPECT_TRUE(says(story, "tensor 'lm_head.weight' differs from 'transformer.wte.weight'")) << story;
}

TEST_F(HuggingFaceExportTest, AnUntiedGpt2KeepsItsHead) {
  write_changed(
      "gpt2", [&](auto& tensors) { tensors["lm_head.weight"] = copy_of(tensors["transformer.wte.weight"]); },
      [](LibraryJson& config) { config["tie_word_embeddings"] = false; });
  const hugging_face::HuggingFaceModel model("changed", mappings);
  EXPECT_TRUE(model.has("output_layer.weight"));
  write_again("changed", "out");
  expect_same_tensors("changed", "out");
}

TEST_F(HuggingFaceExportTest, AnEmbeddingOfAnotherSizeThanConfigSaysIsNamed) {
  write_changed(
      "llama", [](auto&) {}, [](LibraryJson& config) { config["vocab_size"] = 100; });
  const auto story = story_of([&] { hugging_face::HuggingFaceModel model("changed", mappings); });
  EXPECT_TRUE(says(story, "tensor 'model.embed_tokens.weight' is [")) << story;
  EXPECT_TRUE(says(story, "config.json says [100, 48]")) << story;
}

TEST_F(HuggingFaceExportTest, ConfigsThatLackOrContradictAreRefusedByField) {
  const auto story = [&](const std::function<void(LibraryJson&)>& change) {
    auto config = LibraryJson::parse(read_file(models / "llama/hf/config.json"));
    change(config);
    return story_of([&] { hugging_face::parse_hugging_face_config(config.dump(), "config.json", mappings); });
  };
  EXPECT_EQ(story([](LibraryJson&) {}), "no error");
  const auto two = story([](LibraryJson& c) { c["hidden_size"] = nullptr, c["num_hidden_layers"] = nullptr; });
  EXPECT_TRUE(says(two, "hidden_size is null: this is not a value of it; leave the key out for its default")) << two;
  EXPECT_TRUE(says(two, "num_hidden_layers is null")) << two;
  EXPECT_TRUE(says(story([](LibraryJson& c) { c["num_key_value_heads"] = 3; }),
                   "num_query_groups is 3, which does not divide num_attention_heads 4"));
  EXPECT_TRUE(says(story([](LibraryJson& c) { c["hidden_size"] = 50, c.erase("head_dim"); }),
                   "num_attention_heads is 4, which does not divide hidden_size 50"));
  EXPECT_TRUE(says(story([](LibraryJson& c) { c["hidden_size"] = -4; }),
                   "hidden_size is -4; expected an integer of at least 1"));
  EXPECT_TRUE(
      says(story([](LibraryJson& c) { c["hidden_size"] = "wide"; }), "hidden_size is wide; expected an integer"));
  EXPECT_TRUE(says(story([](LibraryJson& c) { c["rope_theta"] = 5; }), "but rope_parameters.rope_theta is 10000.0"));
  EXPECT_EQ(story([](LibraryJson& c) { c["rope_theta"] = 10000; }), "no error");  // the same number, written otherwise
  std::string deep;
  for (int i = 0; i < 100'000; ++i) deep += R"({"a":)";
  deep += "1" + std::string(100'000, '}');
  EXPECT_TRUE(says(story_of([&] { hugging_face::parse_hugging_face_config(deep, "config.json", mappings); }),
                   "is not a JSON object"));
}

TEST_F(HuggingFaceExportTest, ConfigIsWrittenInBothSpellingsAndReadsBackToTheSameModel) {
  for (const char* name : {"gpt2", "llama"}) {
    const auto words = read_file(models / name / "hf/config.json");
    const auto config = hugging_face::parse_hugging_face_config(words, "in", mappings);
    const auto out =
        hugging_face::write_hugging_face_config(config.model_config, config.family, DType::bfloat16, words, mappings);
    const auto json = LibraryJson::parse(out);
    EXPECT_EQ(json["torch_dtype"], "bfloat16");
    EXPECT_EQ(json["dtype"], "bfloat16");
    EXPECT_EQ(json["architectures"], LibraryJson::parse(words)["architectures"]);
    EXPECT_EQ(json["eos_token_id"], LibraryJson::parse(words)["eos_token_id"]);  // carried along
    const auto back = hugging_face::parse_hugging_face_config(out, "out", mappings).model_config;
    for (const auto& [key, value] : config.model_config.fields) {
      ASSERT_NE(back.find(key), nullptr) << key;
      EXPECT_EQ(back.find(key)->scalar, value.scalar) << key;
    }
  }
  const auto llama =
      hugging_face::parse_hugging_face_config(read_file(models / "llama/hf/config.json"), "in", mappings);
  const auto json = LibraryJson::parse(
      hugging_face::write_hugging_face_config(llama.model_config, "llama", DType::float32, "", mappings));
  EXPECT_EQ(json["rope_theta"], json["rope_parameters"]["rope_theta"]);
}

TEST_F(HuggingFaceExportTest, BentRotaryFrequenciesGoOutInBothSpellings) {
  const LibraryJson llama3 = {{"rope_type", "llama3"},   {"rope_theta", 10000.0},
                              {"factor", 4.0},           {"low_freq_factor", 1.0},
                              {"high_freq_factor", 4.0}, {"original_max_position_embeddings", 32}};
  const LibraryJson linear = {{"rope_type", "linear"}, {"rope_theta", 10000.0}, {"factor", 2.0}};
  const LibraryJson yarn = {{"rope_type", "yarn"},
                            {"rope_theta", 10000.0},
                            {"factor", 2.0},
                            {"beta_fast", 16},
                            {"original_max_position_embeddings", 32}};
  for (const auto& bent : {llama3, linear, yarn}) {
    auto config = LibraryJson::parse(read_file(models / "llama/hf/config.json"));
    config["rope_parameters"] = bent;
    const auto ours = hugging_face::parse_hugging_face_config(config.dump(), "in", mappings).model_config;
    const auto out =
        LibraryJson::parse(hugging_face::write_hugging_face_config(ours, "llama", DType::float32, "", mappings));
    EXPECT_EQ(out["rope_parameters"], bent);
    auto four = bent;
    four.erase("rope_theta");
    EXPECT_EQ(out["rope_scaling"], four);
    EXPECT_EQ(out["rope_theta"], 10000.0);
  }
}

TEST_F(HuggingFaceExportTest, AFolderThatHoldsSomethingIsLeftAlone) {
  fs::create_directory("out");
  write("out/precious.txt", "1");
  EXPECT_TRUE(says(story_of([&] { write_again(models / "llama/hf", "out"); }), "out: is there already"));
  EXPECT_TRUE(fs::exists("out/precious.txt"));
}

}  // namespace
}  // namespace tessera
