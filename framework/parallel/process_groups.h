#pragma once

#include "framework/comm/world.h"
#include "framework/parallel/mesh.h"

namespace tessera {

/// One communicator for each axis and set of axes that something is reduced over.
struct ProcessGroups {
  /// A process by itself.
  ProcessGroups() = default;
  /// Collective over the world, whose size is the mesh's. `query_groups`: key and value heads of a layer; with fewer of
  /// them than tensor ranks, some ranks have copies of the same.
  ProcessGroups(const World& world, const Mesh& mesh, std::int64_t query_groups);

  Mesh mesh;
  int cores = 0;          ///< that this process may use for itself, when others of its host take theirs; 0: not known
  MeshPlace place;        ///< of this process
  Communicator world;     ///< all ranks of the run
  Communicator tensor;    ///< share each layer
  Communicator data;      ///< have the same weights and read different samples (context ranks included)
  Communicator pipeline;  ///< the stages of one replica, in order
  Communicator model;     ///< tensor and pipeline: together they hold all weights
  Communicator head_copies;  ///< of the tensor group, those with copies of the same key and value heads
  Communicator ends;         ///< the first and the last stage, which share a tied embedding; alone elsewhere
};

}  // namespace tessera
