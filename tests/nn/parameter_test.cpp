#include "framework/nn/parameter.h"

#include <gtest/gtest.h>

#include <numeric>

#include "framework/nn/flat_parameters.h"

namespace tessera::nn {
namespace {

Parameter parameter(const Shape& shape, TensorCut cut = {}) {
  Parameter out;
  out.name = "weight";
  out.global_shape = shape;
  out.cut = std::move(cut);
  return out;
}

/// Rows 2, 3 and 10, 11, 12 of twelve-and-more rows of four columns.
Parameter two_strips() { return parameter({16, 4}, {0, {{2, 2, true}, {10, 3, false}}}); }

/// The index in the unsplit tensor of every element here, by the boxes of [first, first + count).
std::vector<std::int64_t> by_boxes(const Parameter& p, ElementRange range) {
  const auto columns = p.global_shape.rank() == 2 ? p.global_shape[1] : 1;
  std::vector<std::int64_t> places;
  for (const auto& box : boxes_of(p, range)) {
    const auto rows = box.extent[0], width = box.extent.size() == 2 ? box.extent[1] : 1;
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < width; ++c)
        places.push_back((box.begin[0] + r) * columns + (box.begin.size() > 1 ? box.begin[1] + c : 0));
  }
  return places;
}

/// The same by global_ranges_of.
std::vector<std::int64_t> by_runs(const Parameter& p) {
  std::vector<std::int64_t> places;
  for (const auto& run : global_ranges_of(p))
    for (std::int64_t i = 0; i < run.count; ++i) places.push_back(run.first + i);
  return places;
}

TEST(ParameterTest, WhatIsHereOfACutTensorHasItsOwnShape) {
  EXPECT_EQ(parameter({16, 4}).shape(), Shape({16, 4}));
  EXPECT_EQ(two_strips().shape(), Shape({5, 4}));
  EXPECT_EQ(parameter({16, 4}, TensorCut::even(1, 4, 1, 2)).shape(), Shape({16, 2}));
  EXPECT_EQ(parameter({16}, TensorCut::even(0, 16, 3, 4)).shape(), Shape({4}));
}

TEST(ParameterTest, RunsSayWhereEachElementLiesInTheUnsplitTensor) {
  std::vector<std::int64_t> wanted(8);
  std::iota(wanted.begin(), wanted.end(), 8);
  wanted.resize(20);
  std::iota(wanted.begin() + 8, wanted.end(), 40);
  EXPECT_EQ(by_runs(two_strips()), wanted);
  EXPECT_EQ(by_runs(parameter({3, 4}, TensorCut::even(1, 4, 1, 2))), (std::vector<std::int64_t>{2, 3, 6, 7, 10, 11}));
}

TEST(ParameterTest, BoxesOfAnyRangeAreThoseElements) {
  for (const auto& p : {parameter({16, 4}), two_strips(), parameter({6, 8}, TensorCut::even(1, 8, 1, 2)),
                        parameter({16}), parameter({16}, TensorCut::even(0, 16, 1, 4))}) {
    const auto all = by_runs(p);
    for (std::int64_t first = 0; first < p.elements(); ++first)
      for (std::int64_t count = 1; first + count <= p.elements(); ++count) {
        const std::vector<std::int64_t> wanted(all.begin() + first, all.begin() + first + count);
        ASSERT_EQ(by_boxes(p, {first, count}), wanted) << p.global_shape << " " << first << " " << count;
      }
  }
}

TEST(ParameterTest, OneProcessSpeaksForEachElement) {
  const auto whole = parameter({4, 4}).owned();
  ASSERT_EQ(whole.size(), 1u);
  EXPECT_EQ(whole[0].count, 16);
  EXPECT_TRUE(parameter({4, 4}, TensorCut::copy(4)).owned().empty());
  const auto some = two_strips().owned();
  ASSERT_EQ(some.size(), 1u);
  EXPECT_EQ(some[0].first, 0);
  EXPECT_EQ(some[0].count, 8);
  EXPECT_EQ(parameter({16, 4}, TensorCut::even(1, 4, 1, 2)).owned()[0].count, 32);
}

TEST(ParameterTest, InitialValuesDoNotDependOnTheCut) {
  kernels::Threads threads(2);
  const auto values = [&](TensorCut cut) {
    auto p = parameter({64, 48}, std::move(cut));
    p.init = Init::normal(0.5);
    std::vector<float> out(static_cast<std::size_t>(p.elements()));
    FlatParameters::initialise(threads, 7, p, out);
    return std::pair(out, by_runs(p));
  };
  const auto whole = values({}).first;
  for (const auto& cut :
       {TensorCut::even(0, 64, 1, 4), TensorCut::even(1, 48, 2, 3), TensorCut{0, {{5, 7, true}, {33, 2, false}}}}) {
    const auto [part, places] = values(cut);
    for (std::size_t i = 0; i < part.size(); ++i) ASSERT_EQ(part[i], whole[static_cast<std::size_t>(places[i])]);
  }
}

}  // namespace
}  // namespace tessera::nn
