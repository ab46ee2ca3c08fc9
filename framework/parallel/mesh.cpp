#include "framework/parallel/mesh.h"

#include <algorithm>
#include <array>

namespace tessera::parallel {

int MeshSizes::of(Axis axis) const {
  switch (axis) {
    case Axis::tensor:
      return tensor;
    case Axis::context:
      return context;
    case Axis::data:
      return data;
    case Axis::pipeline:
      return pipeline;
  }
  return 1;
}

int MeshPlace::on(Axis axis) const {
  return axis == Axis::tensor ? tensor : axis == Axis::context ? context : axis == Axis::data ? data : pipeline;
}

std::vector<Axis> Mesh::order() const {
  if (sizes_.pipeline_before_data) return {Axis::tensor, Axis::context, Axis::pipeline, Axis::data};
  return {Axis::tensor, Axis::context, Axis::data, Axis::pipeline};
}

MeshPlace Mesh::place_of(int rank) const {
  MeshPlace place;
  for (const auto axis : order()) {
    const auto size = sizes_.of(axis);
    auto& own = axis == Axis::tensor    ? place.tensor
                : axis == Axis::context ? place.context
                : axis == Axis::data    ? place.data
                                        : place.pipeline;
    own = rank % size;
    rank /= size;
  }
  return place;
}

int Mesh::rank_of(const MeshPlace& place) const {
  int rank = 0, stride = 1;
  for (const auto axis : order()) {
    rank += place.on(axis) * stride;
    stride *= sizes_.of(axis);
  }
  return rank;
}

// `members` collects, axis by axis, the offsets of all members; a rank is the sum of its coordinates times strides.
std::vector<int> Mesh::group_of(int rank, std::span<const Axis> axes) const {
  std::vector<int> members = {0};
  int stride = 1;
  for (const auto axis : order()) {
    const auto size = sizes_.of(axis);
    if (std::find(axes.begin(), axes.end(), axis) == axes.end()) {
      const auto own = rank / stride % size * stride;
      for (auto& member : members) member += own;
    } else {
      const auto before = members;
      for (int k = 1; k < size; ++k)
        for (const auto member : before) members.push_back(member + k * stride);
    }
    stride *= size;
  }
  return members;
}

ExpertPlace Mesh::expert_place_of(int rank) const {
  const auto place = place_of(rank);
  const auto in_stage = place.tensor + sizes_.tensor * (place.context + sizes_.context * place.data);
  const auto sharers = sizes_.sharers_of_expert();
  return {in_stage % sharers, in_stage / sharers % sizes_.expert, in_stage / (sharers * sizes_.expert)};
}

/// The ranks of the stage of `rank` whose place for experts is the same as its own in what `same` compares.
template <class Same>
std::vector<int> Mesh::of_stage(int rank, const Same& same) const {
  constexpr std::array stage{Axis::tensor, Axis::context, Axis::data};
  const auto own = expert_place_of(rank);
  std::vector<int> members;
  for (const auto other : group_of(rank, stage))
    if (same(own, expert_place_of(other))) members.push_back(other);
  return members;
}

std::vector<int> Mesh::expert_group_of(int rank) const {
  return of_stage(rank, [](const ExpertPlace& a, const ExpertPlace& b) { return a.data == b.data; });
}

std::vector<int> Mesh::expert_tensor_group_of(int rank) const {
  return of_stage(rank,
                  [](const ExpertPlace& a, const ExpertPlace& b) { return a.data == b.data && a.expert == b.expert; });
}

std::vector<int> Mesh::expert_data_group_of(int rank) const {
  return of_stage(rank, [](const ExpertPlace& a, const ExpertPlace& b) {
    return a.expert_tensor == b.expert_tensor && a.expert == b.expert;
  });
}

std::vector<std::vector<int>> Mesh::groups(std::span<const Axis> axes) const {
  std::vector<std::vector<int>> all;
  for (int rank = 0; rank < sizes_.world(); ++rank) {
    auto group = group_of(rank, axes);
    if (group.front() == rank) all.push_back(std::move(group));
  }
  return all;
}

}  // namespace tessera::parallel
