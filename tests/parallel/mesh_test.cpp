#include "framework/parallel/mesh.h"

#include <gtest/gtest.h>

namespace tessera::parallel {
namespace {

using Groups = std::vector<std::vector<int>>;

Groups along(const Mesh& mesh, std::vector<Axis> axes) { return mesh.groups(axes); }

// The example in Megatron-LM's documentation of initialize_model_parallel: 16 ranks, tensor 2, pipeline 4.
TEST(MeshTest, GroupsAreThoseOfMegatron) {
  MeshSizes sizes;
  sizes.tensor = 2;
  sizes.data = 2;
  sizes.pipeline = 4;
  const Mesh mesh(sizes);
  EXPECT_EQ(along(mesh, {Axis::tensor}),
            (Groups{{0, 1}, {2, 3}, {4, 5}, {6, 7}, {8, 9}, {10, 11}, {12, 13}, {14, 15}}));
  EXPECT_EQ(along(mesh, {Axis::data}), (Groups{{0, 2}, {1, 3}, {4, 6}, {5, 7}, {8, 10}, {9, 11}, {12, 14}, {13, 15}}));
  EXPECT_EQ(along(mesh, {Axis::pipeline}), (Groups{{0, 4, 8, 12}, {1, 5, 9, 13}, {2, 6, 10, 14}, {3, 7, 11, 15}}));
  EXPECT_EQ(along(mesh, {Axis::tensor, Axis::pipeline}),
            (Groups{{0, 1, 4, 5, 8, 9, 12, 13}, {2, 3, 6, 7, 10, 11, 14, 15}}));
}

TEST(MeshTest, StagesMayStandBeforeReplicas) {
  MeshSizes sizes;
  sizes.tensor = 2;
  sizes.data = 2;
  sizes.pipeline = 2;
  sizes.pipeline_before_data = true;
  const Mesh mesh(sizes);
  EXPECT_EQ(along(mesh, {Axis::pipeline}), (Groups{{0, 2}, {1, 3}, {4, 6}, {5, 7}}));
  EXPECT_EQ(along(mesh, {Axis::data}), (Groups{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
}

// Megatron-LM's example of expert groups: the ranks of a stage in the order etp-ep-edp.
TEST(MeshTest, GroupsOfExpertsAreThoseOfMegatron) {
  const Mesh mesh({.tensor = 2, .context = 2, .data = 2, .pipeline = 2, .expert_tensor = 1, .expert = 4});
  EXPECT_EQ(mesh.expert_group_of(2), (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(mesh.expert_group_of(13), (std::vector<int>{12, 13, 14, 15}));
  EXPECT_EQ(mesh.expert_data_group_of(2), (std::vector<int>{2, 6}));
  EXPECT_EQ(mesh.expert_place_of(7), (ExpertPlace{0, 3, 1}));
  const Mesh divided({.tensor = 2, .data = 4, .expert_tensor = 2, .expert = 2});
  EXPECT_EQ(divided.expert_group_of(5), (std::vector<int>{4, 5, 6, 7}));
  EXPECT_EQ(divided.expert_data_group_of(5), (std::vector<int>{1, 5}));
  EXPECT_EQ(divided.expert_place_of(6), (ExpertPlace{0, 1, 1}));
  EXPECT_FALSE(divided.sizes().experts_like_dense());
}

TEST(MeshTest, ExpertsLikeDenseLayersHaveTheirGroups) {
  const Mesh mesh({.tensor = 2, .context = 2, .data = 2});
  EXPECT_TRUE(mesh.sizes().experts_like_dense());
  for (int rank = 0; rank < 8; ++rank) {
    EXPECT_EQ(mesh.expert_group_of(rank), mesh.group_of(rank, std::vector{Axis::tensor}));
    EXPECT_EQ(mesh.expert_data_group_of(rank), mesh.group_of(rank, std::vector{Axis::context, Axis::data}));
  }
}

TEST(MeshTest, RankAndPlaceSayTheSame) {
  for (const bool swapped : {false, true}) {
    MeshSizes sizes;
    sizes.tensor = 2;
    sizes.context = 3;
    sizes.data = 5;
    sizes.pipeline = 4;
    sizes.pipeline_before_data = swapped;
    const Mesh mesh(sizes);
    for (int rank = 0; rank < sizes.world(); ++rank) {
      EXPECT_EQ(mesh.rank_of(mesh.place_of(rank)), rank);
      const std::vector<Axis> all = {Axis::tensor, Axis::context, Axis::data, Axis::pipeline};
      EXPECT_EQ(mesh.group_of(rank, all).size(), static_cast<std::size_t>(sizes.world()));
      EXPECT_EQ(mesh.group_of(rank, {}), std::vector<int>{rank});
    }
  }
}

}  // namespace
}  // namespace tessera::parallel
