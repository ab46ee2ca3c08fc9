// Groups of a run, tensors sent through them, and Megatron's seeds.
#include "framework/comm/together.h"
#include "framework/parallel/tensor_data.h"
#include "tests/parallel/ranks/cut.h"
#include "tests/story.h"

namespace tessera::parallel {
namespace {

const std::vector<std::string> zero_and_one = {"0", "1"};

std::vector<float> floats_of(const Tensor& tensor) { return {tensor.floats().begin(), tensor.floats().end()}; }

TEST(ModelParallel, RanksStandAsInMegatron) {
  const auto groups = initialize_model_parallel(world(), 2, 2);
  const int rank = world().rank();
  const auto ranks = [](const comm::Communicator& group) {
    return std::vector<int>(group.world_ranks().begin(), group.world_ranks().end());
  };
  EXPECT_EQ(ranks(groups.tensor), (std::vector{rank / 2 * 2, rank / 2 * 2 + 1}));
  EXPECT_EQ(ranks(groups.data), (std::vector{rank / 4 * 4 + rank % 2, rank / 4 * 4 + rank % 2 + 2}));
  EXPECT_EQ(ranks(groups.pipeline), (std::vector{rank % 4, rank % 4 + 4}));
}

TEST(ModelParallel, AWorldThatDoesNotDivideIsRefusedOnAllRanks) {
  const auto story = story_of([] { initialize_model_parallel(world(), 3, 2); });
  EXPECT_TRUE(says(story, "8 processes do not divide by tensor 3 x pipeline 2")) << story;
  EXPECT_THROW(initialize_model_parallel(world(), 0), ConfigError);
  EXPECT_THROW(initialize_model_parallel(world(), 2, 8), ConfigError);
}

TEST(ModelParallel, SeedsAreMegatrons) {
  for (int rank = 0; rank < 4; ++rank) {
    const auto seeds = model_parallel_seeds(123, rank);
    EXPECT_EQ(seeds.common, 123U);
    EXPECT_EQ(seeds.own, 123U + 2718U + static_cast<unsigned>(rank));
  }
}

// The notebook's cell: tensor 2, pipeline 4, and every rank has the same eight tensors.
TEST(BroadcastData, GivesTheGroupTheTensorsThatAreAskedFor) {
  const auto groups = initialize_model_parallel(world(), 2, 4);
  std::vector<std::vector<float>> memory;
  for (int i = 0; i < 8; ++i) memory.emplace_back(64, static_cast<float>(i));
  std::map<std::string, Tensor> data;
  for (std::size_t i = 0; i < 8; ++i) data[std::to_string(i)] = Tensor(std::span(memory[i]), {8, 8});
  const auto out = broadcast_data(zero_and_one, data, DType::float32, groups.tensor);
  EXPECT_EQ(out.all().size(), 2U);
  for (const auto* key : {"0", "1"}) {
    EXPECT_EQ(out[key].shape(), Shape({8, 8}));
    EXPECT_EQ(floats_of(out[key]), floats_of(data[key]));
  }
}

TEST(BroadcastData, TakesNamesShapesAndValuesFromTheFirstOfTheGroupAlone) {
  const auto groups = initialize_model_parallel(world(), 4, 2);
  const bool first = groups.tensor.rank() == 0;
  const auto stage = groups.place.pipeline;
  std::vector<std::int64_t> tokens(static_cast<std::size_t>(3 + stage)), labels = {7, 8};
  for (std::size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = static_cast<std::int64_t>(10 * stage) + static_cast<std::int64_t>(i);
  std::map<std::string, Tensor> data;
  if (first) {
    data["tokens"] = Tensor(std::span(tokens), {1, 3 + stage});
    data["labels"] = Tensor(std::span(labels), {2});
  }
  const std::vector<std::string> keys = {"tokens", "labels"};
  const auto out = broadcast_data(keys, data, DType::int64, groups.tensor);
  EXPECT_EQ(out["tokens"].shape(), Shape({1, 3 + stage}));
  const auto got = out["tokens"].as<std::int64_t>();
  EXPECT_EQ(std::vector(got.begin(), got.end()), tokens);
  EXPECT_EQ(out["labels"].as<std::int64_t>()[1], 8);
  EXPECT_THROW(out["mask"], ShapeError);
}

TEST(BroadcastData, WhatTheFirstLacksIsToldOnAll) {
  const auto groups = initialize_model_parallel(world(), 4, 2);
  std::vector<float> memory(2);
  const std::map<std::string, Tensor> data = {{"0", Tensor(std::span(memory), {2})}};
  for (const auto& [type, words] : {std::pair{DType::float32, "no tensor '1'"}, {DType::int64, "'0' is float32"}}) {
    const auto story = story_of([&, t = type] { broadcast_data(zero_and_one, data, t, groups.tensor); });
    EXPECT_TRUE(says(story, words)) << story;
  }
  if (groups.tensor.rank() > 0)
    EXPECT_THROW(broadcast_data(zero_and_one, data, DType::int64, groups.tensor), comm::PeerFailed);
  else
    EXPECT_THROW(broadcast_data(zero_and_one, data, DType::int64, groups.tensor), ShapeError);
}

// The notebook's cell: tensor 2, pipeline 4.
TEST(Split1d, GatheringJoinsThePartsOfNeighbours) {
  const auto groups = initialize_model_parallel(world(), 2, 4);
  const auto rank = static_cast<float>(world().rank());
  std::vector<float> mine(8, rank), all(16, -1);
  gather_split_1d_tensor(Tensor(std::span(mine), {2, 4}), Tensor(std::span(all), {16}), groups.tensor);
  const float lower = world().rank() % 2 == 0 ? rank : rank - 1;
  std::vector<float> expected(8, lower);
  expected.resize(16, lower + 1);
  EXPECT_EQ(all, expected);
}

TEST(Split1d, WhatWasSplitComesBack) {
  for (const int members : {1, 2, 8}) {
    const auto groups = initialize_model_parallel(world(), members);
    auto whole = made(4 * 6, 1);
    const Tensor tensor(std::span<float>(whole), {4, 6});
    const auto part = split_tensor_into_1d_equal_chunks(tensor, groups.tensor);
    EXPECT_EQ(part.shape(), Shape({24 / members}));
    EXPECT_EQ(part.floats()[0], whole[static_cast<std::size_t>(24 / members * groups.tensor.rank())]);
    std::vector<float> back(24);
    gather_split_1d_tensor(part, Tensor(std::span(back), {4, 6}), groups.tensor);
    EXPECT_EQ(back, whole);
  }
}

TEST(Split1d, WhatDoesNotDivideOrFitIsRefused) {
  const auto groups = initialize_model_parallel(world(), 4);
  std::vector<float> memory(6);
  const Tensor six(std::span<float>(memory), {6});
  EXPECT_TRUE(says(story_of([&] { split_tensor_into_1d_equal_chunks(six, groups.tensor); }), "do not divide by 4"));
  EXPECT_TRUE(says(story_of([&] { gather_split_1d_tensor(six, six, groups.tensor); }), "4 parts of [6]"));
}

}  // namespace
}  // namespace tessera::parallel
