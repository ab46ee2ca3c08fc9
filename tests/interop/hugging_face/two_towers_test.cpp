// Weights of an architecture that is not the GPT, renamed by a table that names the layers of both towers.
#include "tests/model/two_towers.h"

#include <gtest/gtest.h>

#include "framework/checkpoint/safetensors.h"
#include "framework/interop/hugging_face/hugging_face_export.h"
#include "framework/options/choose.h"
#include "tests/own_folder.h"
#include "tests/story.h"

namespace tessera {
namespace {

/// Our weights in memory: element i of a tensor is i, plus a number for each tensor.
class NumberedWeights final : public checkpoint::WeightSource {
 public:
  explicit NumberedWeights(model::Model& model) {
    for (const auto* parameter : model.parameters()) {
      auto& values = values_[parameter->name];
      for (std::int64_t i = 0; i < parameter->elements(); ++i)
        values.push_back(static_cast<float>(i + 10000 * static_cast<std::int64_t>(shapes_.size())));
      shapes_.emplace_back(parameter->name, parameter->global_shape);
    }
  }
  const std::filesystem::path& folder() const override { return folder_; }
  std::vector<std::string> names() const override {
    std::vector<std::string> all;
    for (const auto& [name, shape] : shapes_) all.push_back(name);
    return all;
  }
  bool has(const std::string& name) const override { return values_.count(name) != 0; }
  Shape shape(const std::string& name) const override {
    return std::find_if(shapes_.begin(), shapes_.end(), [&](const auto& one) { return one.first == name; })->second;
  }
  DType dtype(const std::string&) const override { return DType::float32; }
  void read(const std::string& name, const Tensor& into) const override {
    const auto& values = values_.at(name);
    std::copy(values.begin(), values.end(), into.floats().begin());
  }
  const std::vector<float>& values(const std::string& name) const { return values_.at(name); }

 private:
  std::filesystem::path folder_ = "weights";
  std::vector<std::pair<std::string, Shape>> shapes_;
  std::map<std::string, std::vector<float>> values_;
};

const std::string names_of_ours = R"(
tensors:
  words.weight: {from: shared.weight}
  encoder.layers.{layer}.input_layernorm.weight: {from: "enc.{layer}.n1.w"}
  encoder.layers.{layer}.input_layernorm.bias: {from: "enc.{layer}.n1.b"}
  encoder.layers.{layer}.pre_mlp_layernorm.weight: {from: "enc.{layer}.n2.w"}
  encoder.layers.{layer}.pre_mlp_layernorm.bias: {from: "enc.{layer}.n2.b"}
  encoder.layers.{layer}.self_attention.linear_qkv.weight:
    {from: ["enc.{layer}.q", "enc.{layer}.k", "enc.{layer}.v"], steps: group_qkv}
  encoder.layers.{layer}.self_attention.linear_proj.weight: {from: "enc.{layer}.o"}
  encoder.layers.{layer}.mlp.linear_fc1.weight: {from: "enc.{layer}.up", steps: transpose}
  encoder.layers.{layer}.mlp.linear_fc2.weight: {from: "enc.{layer}.down"}
  bridge.weight: {from: bridge}
  decoder.layers.{layer}.input_layernorm.weight: {from: "dec.{layer}.n1.w"}
  decoder.layers.{layer}.input_layernorm.bias: {from: "dec.{layer}.n1.b"}
  decoder.layers.{layer}.pre_mlp_layernorm.weight: {from: "dec.{layer}.n2.w"}
  decoder.layers.{layer}.pre_mlp_layernorm.bias: {from: "dec.{layer}.n2.b"}
  decoder.layers.{layer}.self_attention.linear_qkv.weight:
    {from: ["dec.{layer}.q", "dec.{layer}.k", "dec.{layer}.v"], steps: group_qkv}
  decoder.layers.{layer}.self_attention.linear_proj.weight: {from: "dec.{layer}.o"}
  decoder.layers.{layer}.mlp.linear_fc1.weight: {from: "dec.{layer}.up"}
  decoder.layers.{layer}.mlp.linear_fc2.weight: {from: "dec.{layer}.down"}
  final_layernorm.weight: {from: norm.w}
  final_layernorm.bias: {from: norm.b}
  output_layer.weight: {from: head}
)";

class TwoTowersExport : public InOwnFolder {
 protected:
  TwoTowersExport()
      : architecture_({.encoder_layers = 2,
                       .encoder_width = 8,
                       .encoder_heads = 2,
                       .decoder_layers = 1,
                       .decoder_width = 12,
                       .decoder_heads = 3},
                      {.seq_length = 8}) {
    how_.family = "two_towers";
  }
  hugging_face::WeightTable table(const std::string& words = names_of_ours) const {
    return {options::parse_yaml(words, "towers.yaml"), *architecture_.weight_layout(),
            [](const std::string&) { return false; }};
  }
  TwoTowers architecture_;
  hugging_face::HuggingFaceExport how_;
};

TEST_F(TwoTowersExport, WritesTheLayersOfEachTowerUnderItsNames) {
  const auto model = architecture_.build({.vocabulary = 16});
  const NumberedWeights weights(*model);
  EXPECT_TRUE(hugging_face::write_hugging_face("out", table(), weights, how_).empty());
  const checkpoint::SafetensorsReader files("out");
  EXPECT_EQ(files.names().size(), 4U + 1U + 3U * 10U);
  EXPECT_EQ(files.shape("enc.1.up"), (Shape{8, 16}));  // transposed
  EXPECT_EQ(files.shape("dec.0.up"), (Shape{24, 12}));
  EXPECT_FALSE(files.has("dec.1.up"));
  // Rows of ours: [head][query, key, value][channel], of two heads of 4 channels and of three heads of 4.
  const auto expect_values = [&](const std::string& tower, std::int64_t heads, std::int64_t width) {
    const auto whole = tower == "enc" ? "encoder" : "decoder";
    const auto& ours = weights.values(text(whole, ".layers.0.self_attention.linear_qkv.weight"));
    const auto theirs = files.tensor(tower + ".0.v").floats();
    ASSERT_EQ(files.shape(tower + ".0.v"), (Shape{width, width}));
    for (std::int64_t head = 0; head < heads; ++head)
      for (std::int64_t i = 0; i < 4 * width; ++i)
        EXPECT_EQ(theirs[static_cast<std::size_t>(head * 4 * width + i)],
                  ours[static_cast<std::size_t>((3 * head + 2) * 4 * width + i)])
            << tower << " head " << head << " element " << i;
  };
  expect_values("enc", 2, 8);
  expect_values("dec", 3, 12);
}

TEST_F(TwoTowersExport, ATableWithoutOneTowersLayersOrWithAnothersIsRefused) {
  const auto model = architecture_.build({.vocabulary = 16});
  const NumberedWeights weights(*model);
  const auto part = names_of_ours.substr(0, names_of_ours.find("  decoder.layers"));
  EXPECT_TRUE(says(story_of([&] { hugging_face::write_hugging_face("out", table(part), weights, how_); }),
                   "decoder.layers.0.mlp.linear_fc1.weight: two_towers has no such weight"));
  EXPECT_EQ(
      story_of([&] { table("tensors:\n  vision.layers.{layer}.w: {from: \"w.{layer}\"}\n"); }),
      "towers.yaml:2: 'vision.layers.{layer}.w' is for the layers of no tower of the model; have encoder, decoder");
}

}  // namespace
}  // namespace tessera
