#pragma once

#include <functional>

#include "framework/comm/world.h"
#include "framework/nn/expert_rank.h"
#include "framework/nn/layers.h"
#include "framework/parallel/mesh.h"

namespace tessera::parallel {

/// The communicators of a rank: one for each axis, or set of axes, over which something is reduced or exchanged.
/// Sharded layers get them with the pass (nn::Pass::groups).
struct ProcessGroups {
  /// The groups of a run with one process.
  ProcessGroups() = default;
  /// Creates the groups. Collective over the world, whose size must be that of the mesh (else BugError).
  /// `query_groups`: key/value heads of a layer; if there are fewer than tensor-parallel ranks, some ranks have copies
  /// of the same head. `embedding_stage`: the pipeline stage with the token embedding.
  ProcessGroups(const comm::World& world, const Mesh& mesh, std::int64_t query_groups,
                std::int64_t embedding_stage = 0);
  /// The groups of a rank that does not run: they are unconnected (comm::Communicator::unconnected).
  static ProcessGroups unconnected(const Mesh& mesh, const MeshPlace& place, std::int64_t query_groups,
                                   std::int64_t embedding_stage = 0);

  /// Number of data-parallel ranks, which have different samples. The group `data` is larger by the context-parallel
  /// size.
  int replicas() const { return mesh.sizes().data; }
  /// Position of this rank in its tensor-parallel group, to construct its part of a model.
  nn::TensorRank tensor_rank(bool sequence_parallel = false) const {
    return {tensor.rank(), tensor.size(), sequence_parallel};
  }
  /// Which part of each mixture of experts this rank has.
  nn::ExpertRank expert_rank() const {
    const auto at = mesh.expert_place_of(world.rank());
    return {at.expert, mesh.sizes().expert, at.expert_tensor, mesh.sizes().sharers_of_expert()};
  }

  Mesh mesh;
  int cores = 0;    ///< cores of this process if those of its host are divided among the ranks there; 0: unknown
  MeshPlace place;  ///< coordinates of this rank
  comm::Communicator world;    ///< all ranks of the run
  comm::Communicator tensor;   ///< ranks that shard the same layers
  comm::Communicator context;  ///< ranks that share each sequence
  /// Hierarchical context parallelism: neighbouring ranks that exchange tokens for heads.
  comm::Communicator context_heads;
  comm::Communicator context_ring;   ///< hierarchical: one rank of each such group; they form a ring
  comm::Communicator data;           ///< ranks with the same weights and different tokens: context and data axes
  comm::Communicator micro_batch;    ///< ranks that each have some tokens of a micro-batch: tensor and context axes
  comm::Communicator experts;        ///< ranks that together have every expert of a layer (Mesh::expert_group_of)
  comm::Communicator expert_tensor;  ///< ranks that each have a part of the same experts; if they are several
  comm::Communicator expert_data;    ///< ranks with the same parts of the same experts (Mesh::expert_data_group_of)
  comm::Communicator pipeline;       ///< the stages of one replica, in order
  comm::Communicator model;          ///< tensor and pipeline axes: together they have all weights of a replica
  comm::Communicator head_copies;    ///< ranks of the tensor group with copies of the same key and value heads
  /// The stages with the token embedding and with the output layer, which share a tied embedding; this rank alone on
  /// other stages.
  comm::Communicator ends;
  /// For unconnected groups: Communicator::message_bytes() of the run, if all of its ranks are on one host.
  std::size_t foreseen_message_bytes = 0;

 private:
  using GroupMaker = std::function<comm::Communicator(const char* name, std::span<const int> members)>;
  void make_groups(std::int64_t query_groups, std::int64_t embedding_stage, const GroupMaker& make);
};

}  // namespace tessera::parallel
