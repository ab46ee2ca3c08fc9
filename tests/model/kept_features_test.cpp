// Features of a frozen vision tower in files.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "framework/base/files.h"
#include "framework/model/feature_cache.h"
#include "tests/image_samples.h"
#include "tests/model/built.h"
#include "tests/own_folder.h"

namespace tessera::model {
namespace {

class KeptFeatures : public InOwnFolder {
 protected:
  std::shared_ptr<FeatureCache> cache() {
    return std::make_shared<FeatureCache>("kept", [this](const std::string& line) { told += line + "\n"; });
  }
  double loss(const Batch& batch, std::shared_ptr<FeatureCache> features, const std::string& more = "",
              const Precision& precision = {}, double moved = 0, bool frozen = true) {
    Built b(small_vision + more, 64, 29, precision, std::move(features));
    for (const auto& range : b.layout->ranges()) {
      range.parameter->trained = !frozen || !range.parameter->name.starts_with("vision_");
      if (range.parameter->name == "vision_projection.linear_fc2.bias")
        range.parameter->leaf.value.floats()[0] += static_cast<float>(moved);
    }
    autograd::Tape tape(b.arena, b.threads, false);
    return b.model->loss(tape, batch.view(), {}).total.sum;
  }
  std::vector<std::filesystem::path> files() const {
    std::vector<std::filesystem::path> all;
    if (std::filesystem::exists("kept"))
      for (const auto& entry : std::filesystem::recursive_directory_iterator("kept"))
        if (entry.is_regular_file()) all.push_back(entry.path());
    return all;
  }
  std::string told;
};

TEST_F(KeptFeatures, AreThoseOfTheTowerToTheBitAndUsed) {
  const auto batch = image_batch({{{1, 4, 6}, {2, 2, 4}}, {{1, 8, 2}}}, 64, std::random_device{}());
  for (const auto type : {DType::float32, DType::bfloat16}) {
    const Precision precision{.compute = type, .residual = type};
    const auto computed = loss(batch, nullptr, "", precision);
    const auto before = files();
    EXPECT_EQ(loss(batch, cache(), "", precision), computed);
    ASSERT_EQ(files().size(), before.size() + 1);
    EXPECT_EQ(loss(batch, cache(), "", precision), computed);
    EXPECT_EQ(files().size(), before.size() + 1);
    // Other features of the same key, written as the tower's: the loss follows them.
    for (const auto& file : files()) {
      if (std::ranges::find(before, file) != before.end()) continue;
      ContentKey key;
      const auto name = file.stem().string();
      for (std::size_t i = 0; i < 2; ++i) key.words[i] = std::stoull(name.substr(16 * i, 16), nullptr, 16);
      EXPECT_EQ(key.name(), name);
      std::vector<std::byte> zeros(std::filesystem::file_size(file) - 48);
      cache()->write(key, zeros);
    }
    EXPECT_NE(loss(batch, cache(), "", precision), computed);
  }
  EXPECT_EQ(told, "");
}

TEST_F(KeptFeatures, AreOfOnePictureWeightsAndOptions) {
  const auto batch = image_batch({{{1, 4, 6}}}, 64, 1);
  loss(batch, cache());
  std::size_t kept = 1;
  const auto expect_new = [&](const auto& compute) {
    const double computed = compute(nullptr);
    EXPECT_EQ(compute(cache()), computed);
    EXPECT_EQ(files().size(), ++kept);
  };
  expect_new([&](auto features) { return loss(batch, features, "", {}, 0.5); });
  expect_new([&](auto features) { return loss(batch, features, "", {.residual = DType::bfloat16}); });
  for (const auto* option : {" vision.rotary_base:100", " vision.norm_epsilon:0.1", " vision.hidden_act:silu",
                             " vision.num_attention_heads:1", " vision.window_size:4"})
    expect_new([&](auto features) { return loss(batch, features, option); });
  auto other = image_batch({{{1, 4, 6}}}, 64, 1);
  other.field<float>(pixel_field)[191] += 0.25F;
  expect_new([&](auto features) { return loss(other, features); });
  auto turned = image_batch({{{1, 6, 4}}}, 64, 1);
  std::ranges::copy(batch.view().field<float>(pixel_field), turned.field<float>(pixel_field).begin());
  expect_new([&](auto features) { return loss(turned, features); });
  loss(batch, cache(), "", {}, 0, false);  // a tower that is trained
  loss(image_batch({{}}, 64, 1), cache());
  EXPECT_EQ(files().size(), kept);
  EXPECT_EQ(told, "");
}

TEST_F(KeptFeatures, FromADamagedFileAreToldAndComputedAgain) {
  const auto batch = image_batch({{{1, 4, 6}}}, 64, 2);
  const auto computed = loss(batch, cache());
  ASSERT_EQ(files().size(), 1U);
  const auto file = files().front();
  const auto whole = read_file(file);
  const auto expect_told = [&](const std::string& content, const std::string& words) {
    told.clear();
    std::ofstream(file, std::ios::binary) << content;
    EXPECT_EQ(loss(batch, cache()), computed) << words;
    EXPECT_NE(told.find(words), std::string::npos) << told;
    EXPECT_NE(told.find(file.string()), std::string::npos) << told;
    EXPECT_EQ(read_file(file), whole) << words;
  };
  std::mt19937 random(std::random_device{}());
  auto flipped = whole;
  flipped[48 + random() % (whole.size() - 48)] ^= 4;
  expect_told(flipped, "its checksum is wrong");
  for (const std::size_t at : {0, 7, 8, 15, 23, 24}) {  // magic, key, size
    auto foreign = whole;
    foreign[at] ^= 1;
    expect_told(foreign, "is no file of features with this key");
  }
  expect_told(whole.substr(0, random() % whole.size()), "bytes in place of");
  expect_told("", "has 0 bytes in place of");
}

TEST_F(KeptFeatures, ThatCannotBeWrittenAreToldOnce) {
  std::ofstream("kept") << "a file in place of the folder";
  const auto features = cache();
  for (const unsigned seed : {1U, 2U}) {
    const auto batch = image_batch({{{1, 4, 6}}}, 64, seed);
    EXPECT_EQ(loss(batch, features), loss(batch, nullptr));
  }
  EXPECT_NE(told.find("no more features are kept in"), std::string::npos) << told;
  EXPECT_EQ(std::ranges::count(told, '\n'), 1) << told;
}

}  // namespace
}  // namespace tessera::model
