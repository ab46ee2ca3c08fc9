#pragma once

#include <functional>

#include "framework/comm/world.h"
#include "framework/nn/expert_rank.h"
#include "framework/nn/layers.h"
#include "framework/parallel/mesh.h"

namespace tessera::parallel {

/// The communicators of a rank: one for each axis, or set of axes, that something is reduced over. Sharded layers get
/// them with the pass (Pass::groups).
struct ProcessGroups {
  /// The groups of a run of one process.
  ProcessGroups() = default;
  /// Collective over the world, whose size must be that of the mesh (BugError). `query_groups`: key/value heads of a
  /// layer; with fewer of them than tensor-parallel ranks, some ranks have copies of the same head.
  ProcessGroups(const comm::World& world, const Mesh& mesh, std::int64_t query_groups);
  /// The same for a rank that does not run: its groups are unconnected (comm::Communicator::unconnected).
  static ProcessGroups unconnected(const Mesh& mesh, const MeshPlace& place, std::int64_t query_groups);

  /// Data-parallel ranks, which have different samples; `data` has as many times the context-parallel ranks.
  int replicas() const { return mesh.sizes().data; }
  /// The position of this rank in its tensor-parallel group, to construct its part of a model.
  nn::TensorRank tensor_rank(bool sequence_parallel = false) const {
    return {tensor.rank(), tensor.size(), sequence_parallel};
  }
  /// The part of each mixture of experts that this rank has.
  nn::ExpertRank expert_rank() const {
    const auto at = mesh.expert_place_of(world.rank());
    return {at.expert, mesh.sizes().expert, at.expert_tensor, mesh.sizes().sharers_of_expert()};
  }

  Mesh mesh;
  int cores = 0;             ///< cores for this process when its host's are divided among the ranks there; 0: not known
  MeshPlace place;           ///< coordinates of this rank
  comm::Communicator world;  ///< all ranks of the run
  comm::Communicator tensor;   ///< ranks that shard the same layers
  comm::Communicator context;  ///< ranks that share each sequence
  /// Hierarchical context parallelism: the neighbours that exchange tokens for heads.
  comm::Communicator context_heads;
  comm::Communicator context_ring;  ///< and the ranks, one of each of those groups, that make a ring
  comm::Communicator data;          ///< ranks with the same weights and different tokens: context and data parallelism
  comm::Communicator micro_batch;   ///< ranks that each have some of the tokens of a micro-batch: tensor and context
  comm::Communicator experts;       ///< ranks that together have every expert of a layer (Mesh::expert_group_of)
  comm::Communicator expert_data;   ///< ranks that have the same parts of the same experts
  comm::Communicator pipeline;      ///< the stages of one replica, in order
  comm::Communicator model;         ///< tensor and pipeline: together they hold all weights of a replica
  comm::Communicator head_copies;   ///< ranks of the tensor group with copies of the same key and value heads
  comm::Communicator ends;  ///< first and last stage, which share a tied embedding; on other stages this rank alone
  /// Of unconnected groups: Communicator::message_bytes of the run, if all of its ranks are on one host.
  std::size_t foreseen_message_bytes = 0;

 private:
  using GroupMaker = std::function<comm::Communicator(const char* name, std::span<const int> members)>;
  void make_groups(std::int64_t query_groups, const GroupMaker& make);
};

}  // namespace tessera::parallel
