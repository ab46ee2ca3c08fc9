#include "framework/checkpoint/laid_out_weights.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>

#include "framework/base/files.h"
#include "framework/checkpoint/copy_converted.h"
#include "tests/own_folder.h"

namespace tessera::checkpoint {
namespace {

namespace fs = std::filesystem;

/// Matrices and a vector in memory, of which one is in a mapped file.
class Weights final : public WeightSource {
 public:
  Weights() : folder_("source") {
    write_file_atomic(folder_ / "weights", "some");
    for (const auto* name : {"turned.weight", "other.weight", "there.weight"}) {
      all_[name].resize(12);
      std::iota(all_[name].begin(), all_[name].end(), static_cast<float>(all_.size()));
    }
  }
  const fs::path& folder() const override { return folder_; }
  std::vector<std::string> names() const override {
    return {"turned.weight", "other.weight", "there.weight", "a.bias"};
  }
  bool has(const std::string& name) const override { return name == "a.bias" || all_.contains(name); }
  Shape shape(const std::string& name) const override { return name == "a.bias" ? Shape{4} : Shape{4, 3}; }
  DType dtype(const std::string& name) const override {
    return name == "turned.weight" ? DType::bfloat16 : DType::float64;
  }
  void read(const std::string& name, const Tensor& into) const override {
    ++reads;
    copy_converted(Tensor(std::span(all_.at(name)), {4, 3}), into);
  }
  std::optional<StoredMatrix> stored(const TensorRange& range) const override {
    if (range.name != "there.weight") return std::nullopt;
    return StoredMatrix{.width = 3, .blocks = {}, .files = {}};
  }
  mutable int reads = 0;
  mutable std::map<std::string, std::vector<float>> all_;  ///< [4, 3]

 private:
  fs::path folder_;
};

class LaidOut : public InOwnFolder {
 protected:
  LaidOut() { fs::create_directory("source"); }
  static std::vector<float> values(const WeightSource& source, const std::string& name, const Box& box) {
    const auto matrix = source.stored({.name = name,
                                       .global_shape = {4, 3},
                                       .offsets = box.begin,
                                       .tensor = Tensor::without_elements(DType::float32, Shape(box.extent))});
    std::vector<float> whole(12), out;
    if (!matrix || matrix->blocks.size() != 1) return out;
    const auto& block = matrix->blocks.front();
    copy_converted(block.plain, Tensor(std::span(whole), block.plain.shape()));
    for (std::int64_t row = 0; row < block.rows; ++row)
      for (std::int64_t column = 0; column < matrix->width; ++column)
        out.push_back(whole.at(static_cast<std::size_t>(block.first + row * block.stride + column)));
    return out;
  }
  std::vector<std::string> notes_;
};

TEST_F(LaidOut, MatricesThatNoFileHasAreWrittenOnceInTheirType) {
  const Weights source;
  const auto all = [](const auto&) { return true; };
  const auto made = lay_out(source, all, "cache", notes_);
  ASSERT_TRUE(made);
  EXPECT_EQ(made->names(), (std::vector<std::string>{"other.weight", "turned.weight"}));
  EXPECT_EQ(made->dtype("turned.weight"), DType::bfloat16);
  EXPECT_EQ(made->dtype("other.weight"), DType::float32) << "of float64, which products do not read";
  EXPECT_EQ(values(*made, "turned.weight", {{0, 0}, {4, 3}}), source.all_.at("turned.weight"));
  EXPECT_EQ(values(*made, "other.weight", {{1, 1}, {2, 2}}), (std::vector<float>{6, 7, 9, 10}));
  EXPECT_EQ(notes_.size(), 1U);
  EXPECT_EQ(source.reads, 2);
  const auto again = lay_out(source, all, "cache", notes_);
  EXPECT_EQ(again->folder(), made->folder());
  EXPECT_EQ(source.reads, 2);
  EXPECT_EQ(notes_.size(), 1U);
}

TEST_F(LaidOut, MatricesAreMappedAsTheyLie) {
  const Weights source;
  const auto made = lay_out(
      source, [](const auto& name) { return name == "other.weight"; }, "cache", notes_);
  ASSERT_EQ(made->names(), std::vector<std::string>{"other.weight"});
  const auto asked = [](DType type, const Shape& shape, std::vector<std::int64_t> offsets) {
    return TensorRange{.name = "other.weight",
                       .global_shape = {4, 3},
                       .offsets = std::move(offsets),
                       .tensor = Tensor::without_elements(type, shape)};
  };
  const auto rows = made->map(asked(DType::float32, {2, 3}, {1, 0}));
  ASSERT_TRUE(rows);
  EXPECT_EQ(rows->tensor.floats()[0], 5);
  EXPECT_FALSE(made->map(asked(DType::bfloat16, {2, 3}, {1, 0})));
  EXPECT_FALSE(made->map(asked(DType::float32, {2, 2}, {1, 0}))) << "columns do not lie one after the other";
}

TEST_F(LaidOut, WhatWasWrittenIsFoundWhileTheSourceIsTheSame) {
  const Weights source;
  const auto all = [](const auto&) { return true; };
  EXPECT_FALSE(find_laid_out(source, all, "cache"));
  EXPECT_FALSE(fs::exists("cache")) << "nothing is written";
  const auto made = lay_out(source, all, "cache", notes_);
  const auto found = find_laid_out(source, all, "cache");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->folder(), made->folder());
  EXPECT_EQ(values(*found, "turned.weight", {{0, 0}, {4, 3}}), source.all_.at("turned.weight"));
  EXPECT_FALSE(find_laid_out(
      source, [](const auto& name) { return name == "other.weight"; }, "cache"))
      << "other matrices";
  EXPECT_FALSE(find_laid_out(
      source, [](const auto&) { return false; }, "cache"));
  write_file_atomic("source/weights", "others");
  EXPECT_FALSE(find_laid_out(source, all, "cache")) << "other files";
}

TEST_F(LaidOut, OtherFilesOfTheSourceOrOtherMatricesAreLaidOutAnew) {
  const Weights source;
  const auto all = [](const auto&) { return true; };
  const auto first = lay_out(source, all, "cache", notes_)->folder();
  EXPECT_NE(lay_out(
                source, [](const auto& name) { return name == "other.weight"; }, "cache", notes_)
                ->folder(),
            first);
  EXPECT_FALSE(lay_out(
      source, [](const auto& name) { return name == "there.weight"; }, "cache", notes_));
  write_file_atomic("source/weights", "others");
  source.all_.at("turned.weight")[0] = 100;
  const auto changed = lay_out(source, all, "cache", notes_);
  EXPECT_NE(changed->folder(), first);
  EXPECT_EQ(values(*changed, "turned.weight", {{0, 0}, {1, 1}}), std::vector<float>{100});
}

}  // namespace
}  // namespace tessera::checkpoint
