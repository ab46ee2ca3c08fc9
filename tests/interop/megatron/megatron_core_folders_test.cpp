// The folders of tests/data/megatron_core, which Megatron core itself saved (tests/peers/save_megatron_dist.py).
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <random>
#include <set>

#include "framework/checkpoint/safetensors.h"
#include "framework/interop/megatron/megatron_dist_checkpoint.h"
#include "tests/own_folder.h"
#include "tests/story.h"

namespace tessera::megatron {
namespace {

using Values = std::vector<float>;

class MegatronCoreFolders : public testing::TestWithParam<const char*> {
 protected:
  std::string folder_ = std::string(TESTS_DATA) + "/megatron_core/" + GetParam();
  checkpoint::SafetensorsReader expected_{folder_ + "/whole.safetensors"};
  MegatronDistCheckpoint saved_{folder_ + "/iter_0000010", options::Mappings()};

  Values read(const std::string& name, std::vector<std::int64_t> offsets, const Shape& extents) const {
    Values out(static_cast<std::size_t>(extents.elements()));
    saved_.read_box({name, saved_.shape(name), std::move(offsets), Tensor(std::span(out), extents)});
    return out;
  }
  Values whole(const std::string& name) const {
    const auto tensor = expected_.tensor(name);
    Values out(static_cast<std::size_t>(tensor.elements()));
    std::memcpy(out.data(), tensor.raw().data(), tensor.raw().size());
    return out;
  }
};

TEST_P(MegatronCoreFolders, EveryTensorIsWhatWasSaved) {
  std::set<std::string> names;
  for (const auto& name : saved_.names()) names.insert(name);
  for (const auto& name : saved_.optimizer_names()) names.insert(name);
  const auto expected = expected_.names();
  EXPECT_EQ(names, std::set<std::string>(expected.begin(), expected.end()));
  for (const auto& name : expected) {
    const auto& shape = expected_.shape(name);
    ASSERT_EQ(saved_.shape(name), shape) << name;
    EXPECT_EQ(read(name, std::vector<std::int64_t>(shape.rank()), shape), whole(name)) << name;
  }
}

TEST_P(MegatronCoreFolders, RowsOfATensorAreReadWithoutTheRest) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (const auto& name : expected_.names()) {
    const auto& shape = expected_.shape(name);
    const auto first = std::uniform_int_distribution<std::int64_t>(0, shape[0] - 1)(random);
    const auto count = std::uniform_int_distribution<std::int64_t>(1, shape[0] - first)(random);
    const auto width = shape.elements() / shape[0];
    auto extents = std::vector<std::int64_t>(shape.dims().begin(), shape.dims().end());
    auto offsets = std::vector<std::int64_t>(shape.rank());
    extents[0] = count;
    offsets[0] = first;
    const auto all = whole(name);
    EXPECT_EQ(read(name, offsets, Shape(extents)),
              Values(all.begin() + first * width, all.begin() + (first + count) * width))
        << name;
  }
}

class MegatronCoreBuckets : public InOwnFolder {};

TEST_F(MegatronCoreBuckets, OfAnotherLayoutThanTheArgumentsSayWithWhichFlagToSave) {
  namespace fs = std::filesystem;
  const fs::path recorded = std::string(TESTS_DATA) + "/megatron_core";
  fs::copy(recorded / "buckets/iter_0000010", "iter_0000010");
  fs::copy_file(recorded / "halves/iter_0000010/common.pt", "iter_0000010/common.pt",
                fs::copy_options::overwrite_existing);
  const auto story = story_of([] { MegatronDistCheckpoint("iter_0000010", options::Mappings()); });
  EXPECT_TRUE(says(story, "iter_0000010: ")) << story;
  EXPECT_TRUE(says(story, "with --dist-ckpt-optim-fully-reshardable from core_v0.15 on")) << story;
}

INSTANTIATE_TEST_SUITE_P(All, MegatronCoreFolders, testing::Values("buckets", "halves", "experts"),
                         [](const auto& folder) { return std::string(folder.param); });

}  // namespace
}  // namespace tessera::megatron
