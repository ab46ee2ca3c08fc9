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

  /// Number of ranks.
  int world() const { return tensor * context * data * pipeline; }
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

/// The mapping of ranks to coordinates and groups, without communication. Source: Megatron-LM's RankGenerator, order
/// tp-cp-ep-dp-pp.
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
  /// All groups along `axes`, in the order of their first ranks.
  std::vector<std::vector<int>> groups(std::span<const Axis> axes) const;

 private:
  std::vector<Axis> order() const;
  MeshSizes sizes_;
};

}  // namespace tessera::parallel
