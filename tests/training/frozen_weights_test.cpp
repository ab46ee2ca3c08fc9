// Frozen parameters by themselves: which they are, where their elements are, and their digest.
#include "framework/training/state/frozen_weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <limits>
#include <random>

#include "framework/checkpoint/checkpoint.h"
#include "framework/kernels/type_conversion.h"
#include "framework/nn/flat_parameters.h"
#include "framework/training/state/model_state.h"
#include "framework/training/state/trained_names.h"
#include "tests/drawn_seed.h"
#include "tests/own_folder.h"
#include "tests/story.h"
#include "tests/training/stand_in_model.h"

namespace tessera::training {
namespace {

nn::Parameter frozen(const std::string& name, const Shape& shape, DType type, nn::TensorCut cut = {}) {
  nn::Parameter parameter;
  parameter.name = name;
  parameter.global_shape = shape;
  parameter.init = nn::Init::normal(1);
  parameter.type = type;
  parameter.trained = false;
  parameter.cut = std::move(cut);
  return parameter;
}

std::vector<float> floats_of(const Tensor& tensor) {
  std::vector<float> values(static_cast<std::size_t>(tensor.elements()));
  kernels::Threads threads(1);
  kernels::widen(threads, tensor, values);
  return values;
}

TEST(TrainedNames, ArePatternsOfWholeNames) {
  const auto trains = [](const std::vector<std::string>& frozen_names, const std::vector<std::string>& trainable,
                         const std::string& name) { return TrainedNames(frozen_names, trainable).trains(name); };
  EXPECT_TRUE(trains({}, {}, "a.weight"));
  EXPECT_FALSE(trains({"a\\..*"}, {}, "a.weight"));
  EXPECT_TRUE(trains({"a"}, {}, "a.weight"));         // not the whole name
  EXPECT_TRUE(trains({"a|weight"}, {}, "a.weight"));  // also with alternatives
  EXPECT_TRUE(trains({}, {".*weight"}, "a.weight"));
  EXPECT_FALSE(trains({}, {".*weight"}, "a.bias"));
  EXPECT_FALSE(trains({"a.*"}, {".*weight"}, "a.weight"));
  EXPECT_TRUE(TrainedNames().all());
  EXPECT_TRUE(says(story_of([&] { trains({"a("}, {}, "a"); }), "a("));
}

/// The ranks of a layer exchange rows in the backward pass, so a rank that trains none of its experts takes part if
/// another trains some.
TEST(TrainedNames, OfExpertsTellWhatOtherRanksTrain) {
  std::vector<nn::Parameter> own(4);
  std::vector<nn::Parameter*> all;
  for (auto& parameter : own) all.push_back(&parameter), parameter.role = ParameterRole::expert;
  const std::string layer = "decoder.layers.3.mlp.experts.local_experts.";
  own[0].name = layer + "2.linear_fc1.weight";
  own[1].name = layer + "3.linear_fc1.weight";
  own[2].name = layer + "2.linear_fc2.weight";
  own[3].name = "decoder.layers.4.mlp.experts.local_experts.2.linear_fc1.weight";
  const auto told = [&](const std::string& trainable) {
    freeze(all, TrainedNames({}, {trainable}), 4);
    std::string words;
    for (const auto& parameter : own) words += parameter.trained ? 't' : parameter.leaf.trained_elsewhere ? 'e' : 'f';
    return words;
  };
  EXPECT_EQ(told(".*layers\\.3\\..*experts\\.0\\.linear_fc1.*"), "eeff");  // of another rank
  EXPECT_EQ(told(".*experts\\.3\\..*"), "etee");
  EXPECT_EQ(told(".*experts\\.4\\..*"), "ffff");  // there is no such expert
  EXPECT_EQ(told(".*"), "tttt");
}

TEST(FrozenWeights, BeginAsTheWeightsOfATrainedParameterAreRead) {
  kernels::Threads threads(2);
  for (const auto type : {DType::float32, DType::bfloat16, DType::float16}) {
    auto parameter = frozen("some.weight", {7, 5}, type);
    FrozenWeights weights({{&parameter}});
    weights.initialise(threads, 11);
    EXPECT_EQ(weights.bytes(), type == DType::float32 ? 192 : 128);
    EXPECT_EQ(parameter.leaf.value.dtype(), type);
    EXPECT_FALSE(parameter.leaf.trained());
    std::vector<float> expected(35);
    nn::FlatParameters::initialise(threads, 11, parameter, expected);
    EXPECT_EQ(floats_of(parameter.leaf.value), expected);
  }
}

TEST(FrozenWeights, ThatAreGivenAreNotDrawn) {
  kernels::Threads threads(1);
  auto one = frozen("one", {6, 5}, DType::float32), other = frozen("other", {6, 5}, DType::float32);
  FrozenWeights weights({{&one}, {&other}});
  std::ranges::fill(one.leaf.value.floats(), 3.F);
  weights.initialise(threads, 11, [](const std::string& name) { return name == "one"; });
  EXPECT_EQ(floats_of(one.leaf.value), std::vector<float>(30, 3.F));
  std::vector<float> expected(30);
  nn::FlatParameters::initialise(threads, 11, other, expected);
  EXPECT_EQ(floats_of(other.leaf.value), expected);
}

TEST(FrozenWeights, HaveADigestThatDoesNotDependOnTheLayout) {
  const auto seed = drawn_seed();
  SCOPED_TRACE(text("seed ", seed));
  std::mt19937 random(seed);
  kernels::Threads threads(1);
  for (int drawn = 0; drawn < 50; ++drawn) {
    const int ranks = 1 + static_cast<int>(random() % 4);
    const Shape shape{static_cast<std::int64_t>(1 + random() % 5) * ranks,
                      static_cast<std::int64_t>(1 + random() % 5) * ranks};
    const auto type = random() % 2 == 0 ? DType::bfloat16 : DType::float32;
    const auto digest = [&](nn::TensorCut cut, bool saves = true, const std::string& name = "w") {
      auto parameter = frozen(name, shape, type, std::move(cut));
      FrozenWeights weights({{&parameter, saves}});
      weights.initialise(threads, 3);
      return weights.digest(threads);
    };
    const auto whole = digest({});
    std::uint64_t rows = 0, columns = 0, strips = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      rows += digest(nn::TensorCut::even(0, shape[0], rank, ranks));
      columns += digest(nn::TensorCut::even(1, shape[1], rank, ranks));
      // Each row of `ranks` rows to another rank, and all of them not owned by a second copy.
      nn::TensorCut cut;
      for (std::int64_t row = rank; row < shape[0]; row += ranks) cut.strips.push_back({row, 1, true});
      strips += digest(cut);
      EXPECT_EQ(digest(cut, false), 0U);
    }
    EXPECT_EQ(rows, whole);
    EXPECT_EQ(columns, whole);
    EXPECT_EQ(strips, whole);
    EXPECT_NE(digest({}, true, "v"), whole);  // other values, and another name
  }
}

class MappedWeights : public InOwnFolder {
 protected:
  /// A checkpoint with a whole bf16 tensor of 6 x 8 elements 0, 1, 2, ..., and one of which two ranks saved rows.
  MappedWeights() {
    for (std::size_t i = 0; i < values_.size(); ++i) values_[i] = static_cast<float>(i);
    kernels::Threads threads(1);
    std::vector<std::byte> raw(2 * values_.size());
    const Tensor all(std::span<std::byte>(raw), DType::bfloat16, Shape{6, 8});
    kernels::narrow(threads, values_, all);
    const std::vector<checkpoint::TensorRange> ranges = {
        checkpoint::whole("whole", all),
        {"rows", {6, 8}, {0, 0}, Tensor(std::span(raw).first(32), DType::bfloat16, {2, 8})},
        {"rows", {6, 8}, {2, 0}, Tensor(std::span(raw).subspan(32), DType::bfloat16, {4, 8})}};
    checkpoint::save_checkpoint("saved", "", 1, ranges, {});
  }
  /// The elements after mapping; empty: not mapped.
  std::vector<float> mapped(const std::string& name, nn::TensorCut cut, DType type = DType::bfloat16) {
    const auto opened = checkpoint::Checkpoint::open("saved/iter_0000001");
    auto parameter = frozen(name, {6, 8}, type, std::move(cut));
    FrozenWeights weights({{&parameter}});
    const auto names = weights.map(checkpoint::CheckpointWeights(opened));
    weights.require_intact();
    if (names.empty()) return {};
    in_rows_ = parameter.leaf.stored != nullptr;
    if (!in_rows_) return floats_of(parameter.leaf.value);
    const auto elements = weights.ranges(StateScope::held);
    std::vector<float> all;
    for (const auto& range : elements) std::ranges::copy(floats_of(range.tensor), std::back_inserter(all));
    return all;
  }
  std::vector<float> part(std::size_t first, std::size_t count) const {
    return {values_.begin() + static_cast<std::ptrdiff_t>(first),
            values_.begin() + static_cast<std::ptrdiff_t>(first + count)};
  }
  std::vector<float> values_ = std::vector<float>(48);
  bool in_rows_ = false;  ///< what was mapped last lies in blocks of rows
};

TEST_F(MappedWeights, AreThoseThatAFileHasInOnePiece) {
  EXPECT_EQ(mapped("whole", {}), values_);
  EXPECT_EQ(mapped("whole", nn::TensorCut::even(0, 6, 1, 3)), part(16, 16));
  EXPECT_EQ(mapped("rows", {0, {{2, 4, true}}}), part(16, 32));
  EXPECT_EQ(mapped("rows", {0, {{3, 2, true}}}), part(24, 16));
  EXPECT_FALSE(in_rows_);
  EXPECT_TRUE(mapped("other", {}).empty());
}

TEST_F(MappedWeights, AreBlocksOfRowsWhereTheyLieInPieces) {
  const auto expect = [&](const std::vector<float>& got, const std::vector<float>& expected) {
    EXPECT_EQ(got, expected);
    EXPECT_TRUE(in_rows_);
  };
  expect(mapped("rows", {}), values_);                       // of two saved ranges
  expect(mapped("rows", {0, {{1, 2, true}}}), part(8, 16));  // of both
  expect(mapped("whole", {}, DType::float32), values_);      // of another type
  auto strips = part(0, 8);
  std::ranges::copy(part(16, 16), std::back_inserter(strips));
  expect(mapped("whole", {0, {{0, 1, true}, {2, 2, true}}}), strips);
  std::vector<float> columns;
  for (std::size_t row = 0; row < 6; ++row) std::ranges::copy(part(8 * row + 4, 4), std::back_inserter(columns));
  expect(mapped("rows", nn::TensorCut::even(1, 8, 1, 2)), columns);
}

/// What is stored in rows has the digest of the same elements in memory, rounded to the type that the model reads.
TEST_F(MappedWeights, HaveTheDigestOfTheirElements) {
  kernels::Threads threads(2);
  const auto opened = checkpoint::Checkpoint::open("saved/iter_0000001");
  const checkpoint::CheckpointWeights source(opened);
  const auto digest = [&](nn::TensorCut cut, DType type, bool maps) {
    auto parameter = frozen("rows", {6, 8}, type, std::move(cut));
    FrozenWeights weights({{&parameter}});
    const auto ranges = weights.ranges(StateScope::held);
    if (maps) {
      EXPECT_EQ(weights.map(source).size(), 1U);
      weights.must_be_finite("saved");
    } else {
      for (const auto& range : ranges) source.read_box(range);
    }
    return weights.digest(threads);
  };
  for (const auto type : {DType::float32, DType::bfloat16, DType::float16}) {
    EXPECT_EQ(digest({}, type, true), digest({}, type, false));
    const auto half = nn::TensorCut::even(1, 8, 1, 2);
    EXPECT_EQ(digest(half, type, true), digest(half, type, false));
    EXPECT_EQ(digest(nn::TensorCut::even(1, 8, 0, 2), type, true) + digest(half, type, true), digest({}, type, true));
  }
}

TEST_F(MappedWeights, ThatAreNotFiniteAreRefusedByRowInPiecesAndInOnePiece) {
  values_[3 * 8 + 5] = std::numeric_limits<float>::infinity();
  const std::span<float> rows(values_);
  const std::vector<checkpoint::TensorRange> ranges = {checkpoint::whole("whole", Tensor(rows, {6, 8})),
                                                       {"rows", {6, 8}, {0, 0}, Tensor(rows.first(16), {2, 8})},
                                                       {"rows", {6, 8}, {2, 0}, Tensor(rows.subspan(16), {4, 8})}};
  checkpoint::save_checkpoint("bad", "", 1, ranges, {});
  const auto opened = checkpoint::Checkpoint::open("bad/iter_0000001");
  const auto refusal = [&](const std::string& name) {
    auto parameter = frozen(name, {6, 8}, DType::float32);
    FrozenWeights weights({{&parameter}});
    EXPECT_EQ(weights.map(checkpoint::CheckpointWeights(opened)).size(), 1U);
    return story_of([&] { weights.must_be_finite("bad"); });
  };
  EXPECT_TRUE(says(refusal("rows"), "bad: tensor 'rows', row 3: element [5] is infinite")) << refusal("rows");
  EXPECT_TRUE(says(refusal("whole"), "bad: tensor 'whole': element [3, 5] is infinite")) << refusal("whole");
}

TEST_F(MappedWeights, OfADamagedFileAreRefused) {
  const std::string path = "saved/iter_0000001/model_00000.safetensors";
  const auto size = std::filesystem::file_size(path);
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(size - 3));
  file.put('\x55');
  file.close();
  const auto story = story_of([&] { (void)mapped("whole", {}); });
  EXPECT_TRUE(says(story, "tensor 'whole'")) << story;
  EXPECT_TRUE(says(story, "its CRC is not the one it was saved with")) << story;
}

/// A stage of a pipeline that trains nothing.
TEST(ModelStateWithFrozenParameters, MayTrainNothing) {
  class Frozen final : public StandInModel {
   public:
    Frozen() { declare("w", ParameterRole::matrix, {5, 3}, nn::Init::normal(1)).trained = false; }
  } model;
  class Descent final : public optim::Optimizer {
   public:
    std::vector<std::string> slots() const override { return {"sum"}; }
    void update(const optim::StepScalars&, optim::Block) const override {}
  } descent;
  kernels::Threads threads(2);
  ModelState state(model, &descent);
  state.initialise(threads, 3);
  state.clear_gradients();
  state.update(threads, optim::StepScalars{.step = 1, .lr = 1});
  state.weights_needed();
  EXPECT_EQ(state.first_gradient(false), nullptr);
  EXPECT_EQ(state.bytes().gradients + state.bytes().optimizer, 0);
  EXPECT_EQ(state.bytes().weights, 64);
  EXPECT_TRUE(state.optimizer_ranges().empty());
  EXPECT_EQ(state.weight_ranges().size(), 1U);
  EXPECT_TRUE(state.trained_ranges().empty());
}

}  // namespace
}  // namespace tessera::training
