#pragma once

#include <span>
#include <string>
#include <vector>

namespace tessera {

/// The axes of a run, fastest first in the usual order of ranks.
enum class Axis { tensor, context, data, pipeline };

/// How many ranks there are along each axis.
struct MeshSizes {
  int tensor = 1, context = 1, data = 1, pipeline = 1;
  bool pipeline_before_data = false;  ///< order tp-cp-pp-dp (use_tp_pp_dp_mapping) instead of tp-cp-dp-pp

  int world() const { return tensor * context * data * pipeline; }
  int of(Axis axis) const;
};

/// Where a rank stands on each axis.
struct MeshPlace {
  int tensor = 0, context = 0, data = 0, pipeline = 0;
  int on(Axis axis) const;
  bool operator==(const MeshPlace&) const = default;
};

/// The arrangement of all ranks, without any process: who stands where and which ranks form a group. Source:
/// Megatron-LM's RankGenerator, order tp-cp-ep-dp-pp.
class Mesh {
 public:
  Mesh() = default;
  explicit Mesh(MeshSizes sizes) : sizes_(sizes) {}

  const MeshSizes& sizes() const { return sizes_; }
  MeshPlace place_of(int rank) const;
  int rank_of(const MeshPlace& place) const;

  /// The ranks that differ from `rank` along `axes` alone, itself included, fastest axis first.
  std::vector<int> group_of(int rank, std::span<const Axis> axes) const;
  /// All such groups, in the order of the remaining axes, fastest first.
  std::vector<std::vector<int>> groups(std::span<const Axis> axes) const;

 private:
  std::vector<Axis> order() const;
  MeshSizes sizes_;
};

}  // namespace tessera
