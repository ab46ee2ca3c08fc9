#pragma once

#include <span>
#include <string>
#include <vector>

namespace tessera::parallel {

/// The parallel dimensions of a run, in the default order of ranks, fastest-varying first (tp-cp-dp-pp).
enum class Axis { tensor, context, data, pipeline };

/// The number of ranks along each axis.
struct MeshSizes {
  int tensor = 1, context = 1, data = 1, pipeline = 1;
  /// Hierarchical context parallelism: of the context ranks, how many neighbours exchange tokens for heads; divides
  /// `context`.
  int context_heads = 1;
  bool pipeline_before_data = false;  ///< rank order tp-cp-pp-dp (use_tp_pp_dp_mapping) instead of tp-cp-dp-pp
  /// Of the tensor * context * data ranks of a stage: how many share each expert (0: `tensor`), and how many such
  /// groups divide the experts of a layer. Their product divides that number of ranks.
  int expert_tensor = 0, expert = 1;

  /// Number of ranks.
  int world() const { return tensor * context * data * pipeline; }
  /// Ranks of a pipeline stage that have the same experts.
  int expert_data() const { return tensor * context * data / (sharers_of_expert() * expert); }
  /// Ranks that share each expert.
  int sharers_of_expert() const { return expert_tensor > 0 ? expert_tensor : tensor; }
  /// Whether the ranks that have a weight of an expert are those that have a weight of the other layers.
  bool experts_like_dense() const { return sharers_of_expert() == tensor && expert == 1; }
  /// Number of ranks along one axis.
  int of(Axis axis) const;
};

/// The coordinates of a rank.
struct MeshPlace {
  int tensor = 0, context = 0, data = 0, pipeline = 0;
  /// Coordinate on one axis.
  int on(Axis axis) const;
  bool operator==(const MeshPlace&) const = default;
};

/// The coordinates of a rank among those of its stage, for the weights of experts: the ranks of a stage in the order
/// tensor-context-data are divided again, the fastest-varying first, into expert_tensor, expert and data.
struct ExpertPlace {
  int expert_tensor = 0, expert = 0, data = 0;
  bool operator==(const ExpertPlace&) const = default;
};

/// The mapping of ranks to coordinates and groups, without communication. Source: Megatron-LM's RankGenerator, order
/// tp-cp-ep-dp-pp; for experts, its second generator with expert-tensor for tensor parallelism and no context.
class Mesh {
 public:
  Mesh() = default;
  explicit Mesh(MeshSizes sizes) : sizes_(sizes) {}

  const MeshSizes& sizes() const { return sizes_; }
  /// Coordinates of a rank in [0, world()), and the reverse.
  MeshPlace place_of(int rank) const;
  int rank_of(const MeshPlace& place) const;

  /// The ranks that differ from `rank` only along `axes`, including itself, fastest-varying axis first.
  std::vector<int> group_of(int rank, std::span<const Axis> axes) const;
  ExpertPlace expert_place_of(int rank) const;
  /// The ranks of the stage of `rank` with the same `data` of ExpertPlace: together they have every expert once. In the
  /// order of expert_tensor, then expert.
  std::vector<int> expert_group_of(int rank) const;
  /// The ranks of its stage that have the same parts of the same experts.
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
