#pragma once

#include <span>
#include <string>
#include <vector>

#include "framework/tensor/expert_sharers.h"

namespace tessera::parallel {

/// The axes of a run's layout, in the default order of ranks, fastest-varying first (tp-cp-dp-pp).
enum class Axis { tensor, context, data, pipeline };

/// The number of ranks along each axis.
struct MeshSizes {
  int tensor = 1, context = 1, data = 1, pipeline = 1;
  /// Hierarchical context parallelism: number of neighbouring context ranks that exchange tokens for heads; divides
  /// `context`.
  int context_heads = 1;
  bool pipeline_before_data = false;  ///< rank order tp-cp-pp-dp (use_tp_pp_dp_mapping) instead of tp-cp-dp-pp
  /// Layout of experts over the tensor * context * data ranks of a stage: number of ranks that share each expert (0:
  /// `tensor`), and number of such groups over which the experts of a layer are distributed. Their product divides the
  /// number of ranks of a stage.
  int expert_tensor = 0, expert = 1;

  /// Number of ranks of the run.
  int world() const { return tensor * context * data * pipeline; }
  /// Number of ranks of a pipeline stage that have the same experts.
  int expert_data() const { return tensor * context * data / (sharers_of_expert() * expert); }
  /// Number of ranks that share each expert.
  int sharers_of_expert() const { return tessera::sharers_of_expert(expert_tensor, tensor); }
  /// Whether experts have the same layout as the other layers: ranks with the same expert weights also have the same
  /// other weights.
  bool experts_like_dense() const { return sharers_of_expert() == tensor && expert == 1; }
  /// Number of ranks along one axis.
  int of(Axis axis) const;
};

/// Coordinates of a rank.
struct MeshPlace {
  int tensor = 0, context = 0, data = 0, pipeline = 0;
  /// Coordinate on one axis.
  int on(Axis axis) const;
  bool operator==(const MeshPlace&) const = default;
};

/// Coordinates of a rank within its stage, for expert weights: the ranks of a stage, in the order tensor-context-data,
/// are divided again into expert_tensor, expert and data, fastest-varying first.
struct ExpertPlace {
  int expert_tensor = 0, expert = 0, data = 0;
  bool operator==(const ExpertPlace&) const = default;
};

/// Maps ranks to coordinates and groups; no communication. Source: Megatron-LM's RankGenerator, order tp-cp-ep-dp-pp;
/// for experts, its second generator, with expert-tensor instead of tensor parallelism and without context.
class Mesh {
 public:
  Mesh() = default;
  explicit Mesh(MeshSizes sizes) : sizes_(sizes) {}

  const MeshSizes& sizes() const { return sizes_; }
  /// Coordinates of a rank in [0, world()), and the rank of coordinates.
  MeshPlace place_of(int rank) const;
  int rank_of(const MeshPlace& place) const;

  /// The ranks whose coordinates differ from those of `rank` only on `axes`, including `rank`; fastest-varying axis
  /// first.
  std::vector<int> group_of(int rank, std::span<const Axis> axes) const;
  ExpertPlace expert_place_of(int rank) const;
  /// The ranks of the stage of `rank` with the same ExpertPlace::data: together they have every expert once. Ordered by
  /// expert_tensor, then expert.
  std::vector<int> expert_group_of(int rank) const;
  /// The ranks of that group that each have a part of the experts of `rank`.
  std::vector<int> expert_tensor_group_of(int rank) const;
  /// The ranks of the stage of `rank` that have the same parts of the same experts.
  std::vector<int> expert_data_group_of(int rank) const;
  /// All groups along `axes`, in the order of their first ranks.
  std::vector<std::vector<int>> groups(std::span<const Axis> axes) const;

 private:
  std::vector<Axis> order() const;
  template <class Same>
  std::vector<int> of_stage(int rank, const Same& same) const;
  MeshSizes sizes_;
};

}  // namespace tessera::parallel
