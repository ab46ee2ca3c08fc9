// A model of Transformers whose tensors several processes of torch.distributed.checkpoint have saved: plain, and as
// safetensors of each process. Written by tests/peers/record_dcp.py with torch.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "framework/base/files.h"
#include "framework/interop/hugging_face/hugging_face.h"
#include "framework/interop/torch/tensor_folder.h"
#include "tests/own_folder.h"
#include "tests/story.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

const fs::path recorded = TESTS_DATA "/torch_dcp";
const std::string second = "parts/shard-00002-model-00001-of-00001.safetensors";

class SavedByProcesses : public InOwnFolder {
 protected:
  SavedByProcesses() {
    for (const char* form : {"whole", "plain", "parts", "trained"}) {
      fs::copy(recorded / form, form);
      if (form != std::string("whole")) fs::copy_file("whole/config.json", fs::path(form) / "config.json");
    }
  }
  hugging_face::HuggingFaceModel open(const std::string& folder) const { return {folder, mappings}; }
  std::string story(const std::string& folder) const {
    return story_of([&] { open(folder); });
  }
  static std::vector<float> floats(const hugging_face::HuggingFaceModel& model, const std::string& name) {
    std::vector<float> out(static_cast<std::size_t>(model.shape(name).elements()));
    model.read(name, out);
    return out;
  }
  /// The same bytes in place of others of the same number.
  static void replace(const std::string& file, const std::string& words, const std::string& others) {
    auto content = read_file(file);
    const auto at = content.find(words);
    ASSERT_NE(at, std::string::npos);
    content.replace(at, words.size(), others);
    std::ofstream(file, std::ios::binary) << content;
  }

  options::Mappings mappings;
};

TEST_F(SavedByProcesses, EveryTensorIsWhatTheProcessesHadTogether) {
  const auto whole = open("whole");
  for (const char* form : {"plain", "parts"}) {
    const auto model = open(form);
    EXPECT_EQ(model.names(), whole.names());
    for (const auto& name : whole.names()) {
      ASSERT_EQ(model.shape(name), whole.shape(name)) << form << " " << name;
      EXPECT_EQ(floats(model, name), floats(whole, name)) << form << " " << name;
    }
    EXPECT_TRUE(says(model.description(), "llama, of ")) << model.description();
  }
}

TEST_F(SavedByProcesses, ABoxIsReadAndOnlyWholeFilesAreMapped) {
  const std::string table = "embedding.word_embeddings.weight", norm = "decoder.final_layernorm.weight";
  const auto whole = open("whole");
  for (const char* form : {"plain", "parts"}) {
    const auto model = open(form);
    std::vector<float> box(6), expected(6);
    model.read_box({.name = table, .global_shape = {13, 8}, .offsets = {4, 3}, .tensor = {std::span(box), {2, 3}}});
    whole.read_box(
        {.name = table, .global_shape = {13, 8}, .offsets = {4, 3}, .tensor = {std::span(expected), {2, 3}}});
    EXPECT_EQ(box, expected);
    std::vector<float> memory(13 * 8);
    const checkpoint::TensorRange all{
        .name = table, .global_shape = {13, 8}, .offsets = {0, 0}, .tensor = {std::span(memory), {13, 8}}};
    EXPECT_FALSE(model.map(all)) << form;
    EXPECT_FALSE(model.stored(all)) << form;
  }
  std::vector<float> memory(8);
  EXPECT_TRUE(open("parts").map(
      {.name = norm, .global_shape = {8}, .offsets = {0}, .tensor = {std::span(memory), {8}}}));  // one process has it
}

TEST_F(SavedByProcesses, RowsOfAFusedWeightAreReadWithoutTheOthers) {
  const std::string fused = "decoder.layers.0.self_attention.linear_qkv.weight";
  const auto whole = open("whole");
  const auto expected = floats(whole, fused);
  for (const char* form : {"plain", "parts"}) {
    const auto model = open(form);
    for (const auto& name : {fused, std::string("decoder.layers.0.mlp.linear_fc1.weight")})
      EXPECT_TRUE(model.reads_rows(name)) << form << " " << name;
    for (std::int64_t row = 0; row < 16; ++row) {
      std::vector<float> box(2 * 5);
      const Tensor rows{std::span(box), {std::min<std::int64_t>(2, 16 - row), 5}};
      model.read_box({.name = fused, .global_shape = {16, 8}, .offsets = {row, 2}, .tensor = rows});
      for (std::int64_t i = 0; i < rows.elements(); ++i)
        EXPECT_EQ(box[static_cast<std::size_t>(i)], expected[static_cast<std::size_t>((row + i / 5) * 8 + 2 + i % 5)]);
    }
  }
}

TEST_F(SavedByProcesses, TensorsBesideTheModelAreNamed) {
  const auto notes = open("plain").notes();
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_TRUE(says(notes[0], "are not read, such as 'optimizer.exp_avg.model.layers.0.self_attn.k_proj.weight'"))
      << notes[0];
}

TEST_F(SavedByProcesses, ChecksumsAreVerifiedWhereThereAreSome) {
  open("plain").verify();
  EXPECT_TRUE(says(story_of([&] { open("parts").verify(); }), "have no checksums"));
  const auto row = floats(open("whole"), "embedding.word_embeddings.weight");
  auto content = read_file("plain/__1_0.distcp");
  const auto at = content.find(std::string(reinterpret_cast<const char*>(row.data() + 5 * 8), 32));
  ASSERT_NE(at, std::string::npos);  // row 5 is the first of the second process
  content[at + 9] = static_cast<char>(content[at + 9] ^ 1);
  std::ofstream("plain/__1_0.distcp", std::ios::binary) << content;
  EXPECT_TRUE(says(story_of([&] { open("plain").verify(); }), "__1_0.distcp"));
  EXPECT_TRUE(says(story_of([&] { floats(open("plain"), "embedding.word_embeddings.weight"); }), "__1_0.distcp"));
}

TEST_F(SavedByProcesses, FilesOfAProcessThatAreMissingAreNamed) {
  fs::remove(second);
  EXPECT_TRUE(says(story("parts"), "a file shard-2-... was expected before shard-00003")) << story("parts");
  fs::remove("parts/shard-00003-model-00001-of-00001.safetensors");
  EXPECT_TRUE(says(story("parts"), "parts: tensor 'lm_head.weight'") ||
              says(story("parts"), "parts: tensor 'model.embed_tokens.weight'") || says(story("parts"), "missing"))
      << story("parts");
  fs::remove("plain/__2_0.distcp");
  EXPECT_TRUE(says(story("plain"), "__2_0.distcp")) << story("plain");
}

TEST_F(SavedByProcesses, PartsThatDoNotFitTogetherAreNamed) {
  const std::string begins = R"(\"model.embed_tokens.weight\": {\"saved_offsets\": [)";
  replace(second, begins + "5", begins + "4");
  EXPECT_TRUE(says(story("parts"), "tensor 'model.embed_tokens.weight': two ranges overlap")) << story("parts");
  replace(second, begins + "4", begins + "6");
  EXPECT_TRUE(says(story("parts"), "tensor 'model.embed_tokens.weight': ")) << story("parts");
  replace(second, begins + "6, 0", begins + "-6,0");
  EXPECT_TRUE(says(story("parts"), "DCP_SHARDING_INFO of tensor 'model.embed_tokens.weight' is")) << story("parts");
  replace(second, "DCP_SHARDING_INFO", "DCP_SHARDING_INFx");
  EXPECT_TRUE(says(story("parts"), "its metadata have no DCP_SHARDING_INFO")) << story("parts");
}

TEST_F(SavedByProcesses, OptimizerStateUnderTheNamesOfTorchIsReadInOurLayouts) {
  const auto trained = open("trained");
  EXPECT_EQ(trained.iteration(), 3);
  ASSERT_TRUE(trained.progress());
  EXPECT_EQ(trained.progress()->updates, 3);
  EXPECT_FALSE(trained.progress()->has_seed);
  EXPECT_EQ(trained.optimizer_names().size(), 2 * trained.names().size());
  const auto notes = trained.notes();
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_TRUE(says(notes[0], "trained: has optimizer state (exp_avg, exp_avg_sq) after 3 steps")) << notes[0];
  for (const std::string word : {"model", "exp_avg", "exp_avg_sq"}) {
    fs::create_directory(word);
    fs::copy_file("whole/config.json", word + "/config.json");
    fs::copy_file(recorded / ("trained_whole/" + word + ".safetensors"), word + "/model.safetensors");
    const auto expected = open(word);
    for (const auto& weight : expected.names()) {
      const auto name = word == "model" ? weight : "optimizer." + word + "." + weight;
      ASSERT_TRUE(trained.has(name)) << name;
      ASSERT_EQ(trained.shape(name), expected.shape(weight)) << name;
      EXPECT_EQ(trained.dtype(name), DType::float32);
      EXPECT_EQ(floats(trained, name), floats(expected, weight)) << name;
      if (trained.shape(name).rank() != 2) continue;
      EXPECT_EQ(trained.reads_rows(name), trained.reads_rows(weight));
      const auto shape = trained.shape(name);
      std::vector<float> box(static_cast<std::size_t>(shape[1])), row(box.size());
      trained.read_box({name, shape, {shape[0] - 1, 0}, Tensor(std::span(box), Shape{1, shape[1]})});
      expected.read_box({weight, shape, {shape[0] - 1, 0}, Tensor(std::span(row), Shape{1, shape[1]})});
      EXPECT_EQ(box, row) << name;
    }
  }
  EXPECT_FALSE(trained.has("optimizer.step.decoder.final_layernorm.weight"));
  EXPECT_FALSE(trained.has("optimizer.exp_avg.no.such.weight"));
  EXPECT_TRUE(open("plain").optimizer_names().empty());  // under other names
  EXPECT_FALSE(open("plain").progress());
}

/// The words of a key are texts of .metadata.
TEST_F(SavedByProcesses, OptimizerStateThatIsNotWholeIsNamedAndNotRead) {
  const auto story = [&](const std::string& words, const std::string& others) {
    fs::remove_all("odd");
    fs::copy("trained", "odd");
    auto content = read_file("odd/.metadata");
    std::size_t count = 0;
    for (auto at = content.find(words); at != std::string::npos; at = content.find(words, at + 1), ++count)
      content.replace(at, words.size(), others);
    EXPECT_GT(count, 0U) << words;
    std::ofstream("odd/.metadata", std::ios::binary) << content;
    const auto model = open("odd");
    EXPECT_TRUE(model.optimizer_names().empty());
    EXPECT_FALSE(model.progress());
    EXPECT_EQ(floats(model, "decoder.final_layernorm.weight"),
              floats(open("trained"), "decoder.final_layernorm.weight"));
    return model.notes().empty() ? "" : model.notes().back();
  };
  EXPECT_TRUE(says(story("lm_head.weight.exp_avg_sq", "lm_head.weighs.exp_avg_sq"),
                   "odd: its optimizer state is not read, only its weights are: odd: the tensors are not those"));
  EXPECT_TRUE(says(story(".step", ".stop"), "no step of the optimizer"));
}

TEST_F(SavedByProcesses, TheStateDictOfTheModelMayLieBelowAnyKey) {
  torch::DcpTensors tensors("plain");
  EXPECT_TRUE(tensors.has("model.lm_head.weight"));
  EXPECT_TRUE(tensors.has("optimizer.exp_avg.model.layers.0.self_attn.k_proj.weight"));
  tensors.take_below("model.");
  EXPECT_TRUE(tensors.has("lm_head.weight"));
  EXPECT_EQ(tensors.names().size(), 12U);
  EXPECT_TRUE(says(story_of([&] { tensors.whole("model.lm_head.weight"); }), "has no tensor 'model.lm_head.weight'"));
}

}  // namespace
}  // namespace tessera
