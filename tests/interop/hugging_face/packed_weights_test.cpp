// Weights that a folder of Transformers has in NF4, as bitsandbytes 0.50 wrote them, and what is refused.
#include "framework/interop/hugging_face/packed_weights.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "framework/base/files.h"
#include "framework/interop/hugging_face/hugging_face.h"
#include "framework/kernels/type_conversion.h"
#include "framework/kernels/weight.h"
#include "tests/own_folder.h"
#include "tests/story.h"

namespace tessera::hugging_face {
namespace {

namespace fs = std::filesystem;

const fs::path recorded = fs::path(TESTS_DATA) / "nf4";

std::vector<float> values_of(const Tensor& tensor) {
  std::vector<float> values(static_cast<std::size_t>(tensor.elements()));
  kernels::widen_range(kernels::Elements(tensor), values);
  return values;
}

class PackedFolder : public InOwnFolder {
 protected:
  options::Mappings mappings_;
};

TEST_F(PackedFolder, HasTheValuesThatBitsandbytesGives) {
  const checkpoint::SafetensorsReader expected(recorded / "dequantised.safetensors");
  const checkpoint::SafetensorsReader files(recorded / "hf_nf4");
  const PackedWeights packed(files);
  for (const auto& name : expected.names()) {
    const auto* weight = packed.find(name);
    ASSERT_NE(weight, nullptr) << name;
    EXPECT_EQ(weight->type, DType::bfloat16);
    EXPECT_EQ(weight->shape, expected.shape(name));
    std::vector<float> values(static_cast<std::size_t>(weight->array->size()));
    weight->array->unpack(0, values);
    EXPECT_EQ(values, values_of(expected.tensor(name))) << name;
  }
  EXPECT_EQ(packed.find("lm_head.weight"), nullptr);
  EXPECT_TRUE(packed.has_part("model.layers.0.mlp.up_proj.weight.absmax"));
  EXPECT_FALSE(packed.has_part("model.layers.0.mlp.up_proj.weight"));
}

/// The fused layers of ours, whole and as a tensor-parallel rank has them: read, and as rows in place.
TEST_F(PackedFolder, IsReadAndStoredInOurLayout) {
  const HuggingFaceModel model(recorded / "hf_nf4", mappings_);
  for (const auto& name : model.names()) {
    const auto shape = model.shape(name);
    if (name.find("linear") == std::string::npos) continue;
    EXPECT_EQ(model.dtype(name), DType::bfloat16) << name;
    std::vector<float> all(static_cast<std::size_t>(shape.elements()));
    model.read(name, all);
    const auto width = shape[1];
    for (const auto& [row, rows, col, cols] :
         {std::array{std::int64_t{0}, shape[0], std::int64_t{0}, width},
          std::array{shape[0] / 2, shape[0] / 2, std::int64_t{0}, width},
          std::array{std::int64_t{3}, shape[0] - 5, width / 2, width - width / 2}}) {
      const checkpoint::TensorRange range{.name = name,
                                          .global_shape = shape,
                                          .offsets = {row, col},
                                          .tensor = Tensor::without_elements(DType::float32, {rows, cols}),
                                          .role = ParameterRole::matrix};
      EXPECT_FALSE(model.map(range).has_value());
      const auto stored = model.stored(range);
      ASSERT_TRUE(stored.has_value()) << name;
      EXPECT_EQ(stored->rows(), rows);
      std::vector<float> box(static_cast<std::size_t>(rows * cols));
      kernels::read_box(*stored, {0, rows, 0, cols}, DType::float32, box);
      std::vector<float> expected;
      for (std::int64_t r = row; r < row + rows; ++r)
        expected.insert(expected.end(), all.begin() + r * width + col, all.begin() + r * width + col + cols);
      EXPECT_EQ(box, expected) << name;
    }
  }
}

/// What damages or storage types say: one line that names tensor and remedy.
TEST_F(PackedFolder, ThatCannotBeReadIsRefusedByName) {
  const checkpoint::SafetensorsReader files(recorded / "hf_nf4");
  const auto story_with = [&](const std::function<void(std::map<std::string, Tensor>&)>& change) {
    std::map<std::string, Tensor> tensors;
    for (const auto& name : files.names()) tensors[name] = files.tensor(name);
    change(tensors);
    checkpoint::write_safetensors("changed.safetensors", tensors);
    return story_of([] { PackedWeights(checkpoint::SafetensorsReader("changed.safetensors")); });
  };
  EXPECT_EQ(story_with([](auto&) {}), "no error");
  const std::string one = "model.layers.1.mlp.up_proj.weight";
  const auto missing = story_with([&](auto& all) { all.erase(one + ".nested_absmax"); });
  EXPECT_TRUE(says(missing, text("tensor '", one, "' in NF4: the files have no '", one, ".nested_absmax'"))) << missing;
  std::vector<float> other(16, 0.5F);
  const auto table = story_with([&](auto& all) { all[one + ".quant_map"] = Tensor(std::span<float>(other), {16}); });
  EXPECT_TRUE(says(table, "other values than bitsandbytes gives its codes")) << table;
  const auto shorter = story_with([&](auto& all) { all[one] = all[one].slice(0, 100); });
  EXPECT_TRUE(says(shorter, "expected 1152")) << shorter;
  const auto fp4 = story_with(
      [&](auto& all) { all[one + ".quant_state.bitsandbytes__fp4"] = all[one + ".quant_state.bitsandbytes__nf4"]; });
  EXPECT_TRUE(says(fp4, "weights in fp4 are not supported; convert the model to float weights")) << fp4;
}

TEST_F(PackedFolder, OnlyNf4OfBitsandbytesIsRead) {
  const auto reads = [](const std::string& words) { return reads_quantization(parse_json(words)); };
  const std::string good = R"({"quant_method": "bitsandbytes", "load_in_4bit": true, "bnb_4bit_quant_type": "nf4")";
  EXPECT_TRUE(reads(good + "}"));
  EXPECT_FALSE(reads(good + R"(, "load_in_8bit": true})"));
  EXPECT_FALSE(reads(good + R"(, "bnb_4bit_quant_storage": "bfloat16"})"));
  EXPECT_FALSE(reads(R"({"quant_method": "bitsandbytes", "load_in_4bit": true, "bnb_4bit_quant_type": "fp4"})"));
  EXPECT_FALSE(reads(R"({"quant_method": "bitsandbytes", "load_in_4bit": true})"));
  EXPECT_FALSE(reads(R"({"quant_method": "gptq", "bits": 4})"));
  EXPECT_FALSE(reads("4"));
}

}  // namespace
}  // namespace tessera::hugging_face
