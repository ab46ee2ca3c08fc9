// Folders in NF4 that we make: the tensors that bitsandbytes 0.50 and Transformers wrote of the same base.
#include "framework/interop/hugging_face/quantised_folder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "framework/base/files.h"
#include "framework/base/json.h"
#include "framework/interop/hugging_face/hugging_face.h"
#include "framework/kernels/nf4.h"
#include "framework/kernels/weight.h"
#include "tests/own_folder.h"
#include "tests/story.h"

namespace tessera::hugging_face {
namespace {

namespace fs = std::filesystem;

const fs::path nf4_data = fs::path(TESTS_DATA) / "nf4";

Json state_in(const Tensor& tensor) {
  return parse_json(std::string(reinterpret_cast<const char*>(tensor.raw().data()), tensor.bytes()));
}

class QuantisedFolder : public InOwnFolder {
 protected:
  fs::path make(const fs::path& folder, bool nested = true) {
    notes_.clear();
    told_.clear();
    const auto tell = [this](const std::string& line) { told_.push_back(line); };
    return quantised_folder(folder, {.nested = nested, .cache = "cache", .tell = tell}, mappings_, notes_);
  }
  options::Mappings mappings_;
  std::vector<std::string> notes_, told_;
};

/// An 8-bit code may be the neighbour of that of bitsandbytes, which finds it through a table of bins.
void expect_same_tensor(const std::string& name, const Tensor& ours, const Tensor& theirs) {
  ASSERT_EQ(ours.dtype(), theirs.dtype()) << name;
  if (name.ends_with(nf4_ending)) {
    EXPECT_EQ(state_in(ours).dump(), state_in(theirs).dump()) << name;
    return;
  }
  ASSERT_EQ(ours.shape(), theirs.shape()) << name;
  int others = 0;
  for (std::size_t i = 0; i < ours.bytes(); ++i) {
    const auto a = std::to_integer<int>(ours.raw()[i]), b = std::to_integer<int>(theirs.raw()[i]);
    if (a == b) continue;
    ++others;
    EXPECT_TRUE(name.ends_with(".absmax") && std::abs(a - b) == 1) << name << ", byte " << i;
  }
  EXPECT_LE(others, 1) << name;
}

TEST_F(QuantisedFolder, HasTheTensorsOfBitsandbytes) {
  const auto out = make(nf4_data / "hf_bf16");
  EXPECT_EQ(out, fs::path("cache/hf_bf16-nf4"));
  const checkpoint::SafetensorsReader ours(out), theirs(nf4_data / "hf_nf4");
  ASSERT_EQ(ours.names(), theirs.names());
  for (const auto& name : theirs.names()) expect_same_tensor(name, ours.tensor(name), theirs.tensor(name));
  EXPECT_TRUE(reads_quantization(parse_json(read_file(out / "config.json"))["quantization_config"]));
}

TEST_F(QuantisedFolder, WithMaximaIn32BitsHasThoseOfItsBlocks) {
  const HuggingFaceModel base(nf4_data / "hf_bf16", mappings_), model(make(nf4_data / "hf_bf16", false), mappings_);
  for (const auto& name : base.names()) {
    std::vector<float> was(static_cast<std::size_t>(base.shape(name).elements())), is(was.size());
    base.read(name, was);
    model.read(name, is);
    const bool linear = name.find(".linear_") != std::string::npos && !name.ends_with("layer_norm_weight");
    EXPECT_EQ(model.storage_type(name), linear ? "nf4" : "") << name;
    EXPECT_EQ(was == is, !linear) << name;
  }
}

/// GPT-2 has its matrices as [in, out]; bitsandbytes quantises them as [out, in].
TEST_F(QuantisedFolder, OfTransposedWeightsHasRowsOfTheLayer) {
  const auto folder = fs::path(TESTS_DATA) / "families" / "gpt2";
  const HuggingFaceModel base(folder, mappings_), model(make(folder, false), mappings_);
  int matrices = 0;
  for (const auto& row : base.table().rows()) {
    if (std::ranges::find(row.steps, WeightStep::transpose) == row.steps.end()) continue;
    ++matrices;
    const auto shape = base.shape(row.name);
    ASSERT_EQ(model.shape(row.name), shape);
    std::vector<float> was(static_cast<std::size_t>(shape.elements())), is(was.size()), box(was.size());
    base.read(row.name, was);
    model.read(row.name, is);
    float most = 0;
    for (const auto x : was) most = std::max(most, std::abs(x));
    for (std::size_t i = 0; i < was.size(); ++i) ASSERT_NEAR(is[i], was[i], 0.16F * most) << row.name;
    const auto stored = model.stored({.name = row.name,
                                      .global_shape = shape,
                                      .offsets = {0, 0},
                                      .tensor = Tensor::without_elements(DType::float32, shape),
                                      .role = ParameterRole::matrix});
    ASSERT_TRUE(stored.has_value()) << row.name;
    kernels::read_box(*stored, {0, shape[0], 0, shape[1]}, DType::float32, box);
    EXPECT_EQ(box, is) << row.name;
  }
  EXPECT_GT(matrices, 0);
}

TEST_F(QuantisedFolder, IsMadeOnceForTheSameWeights) {
  fs::copy(nf4_data / "hf_bf16", "base");
  for (const auto& entry : fs::directory_iterator("base")) fs::permissions(entry, fs::perms::owner_all);
  fs::create_directories("cache/base-nf4_tmp");  // of a process that was killed
  std::ofstream("cache/base-nf4_tmp/model-9.safetensors") << "half";
  const auto there = [&](bool nested) {
    return quantised_folder("base", {.nested = nested, .cache = "cache", .writes = false}, mappings_, notes_);
  };
  EXPECT_EQ(there(true), "base");
  EXPECT_FALSE(fs::exists("cache/base-nf4"));
  const auto out = make("base/");
  EXPECT_EQ(there(true), out);
  EXPECT_EQ(there(false), "base");
  ASSERT_EQ(notes_.size(), 1U);
  EXPECT_TRUE(says(notes_[0], "21 matrices of base/ were quantised to nf4, in cache/base-nf4")) << notes_[0];
  ASSERT_EQ(told_.size(), 2U);
  EXPECT_TRUE(says(told_[0], "quantising 21 matrices of base/, ")) << told_[0];
  EXPECT_EQ(told_[1], "quantised 100 % of base/");
  EXPECT_FALSE(fs::exists(out / "model-9.safetensors"));
  EXPECT_FALSE(fs::exists("cache/base-nf4_tmp"));
  make("base");
  EXPECT_TRUE(notes_.empty());
  EXPECT_TRUE(told_.empty());
  EXPECT_EQ(make(out), out);
  make("base", false);
  ASSERT_EQ(notes_.size(), 2U);
  EXPECT_TRUE(says(notes_[0], "was made of other weights")) << notes_[0];
  fs::last_write_time("base/model.safetensors",
                      fs::last_write_time("base/model.safetensors") + std::chrono::seconds(1));
  make("base", false);
  EXPECT_EQ(notes_.size(), 2U);
}

TEST_F(QuantisedFolder, HasNoIndexOfTheFilesOfItsSource) {
  fs::copy(nf4_data / "hf_bf16", "base");
  std::ofstream("base/model.safetensors.index.json") << R"({"weight_map": {}})";
  const auto out = make("base");
  EXPECT_TRUE(fs::exists(out / "config.json"));
  EXPECT_FALSE(fs::exists(out / "index.json"));
}

TEST_F(QuantisedFolder, IsNotMadeOfNumbersThatAreNotFinite) {
  const checkpoint::SafetensorsReader files(nf4_data / "hf_bf16");
  std::map<std::string, Tensor> tensors;
  for (const auto& name : files.names()) tensors[name] = files.tensor(name);
  const std::string one = "model.layers.2.mlp.up_proj.weight";
  std::vector<std::byte> bytes(tensors[one].raw().begin(), tensors[one].raw().end());
  bytes[0] = bytes[1] = std::byte{0xFF};
  tensors[one] = Tensor(std::span(bytes), DType::bfloat16, tensors[one].shape());
  fs::create_directory("base");
  fs::copy_file(nf4_data / "hf_bf16" / "config.json", "base/config.json");
  checkpoint::write_safetensors("base/model.safetensors", tensors);
  const auto why = story_of([&] { make("base"); });
  EXPECT_TRUE(says(why, one)) << why;
  EXPECT_FALSE(fs::exists("cache/base-nf4"));
}

}  // namespace
}  // namespace tessera::hugging_face
