#pragma once

#include "framework/comm/world.h"
#include "framework/parallel/mesh.h"

namespace tessera {

/// One communicator for each axis and set of axes that something is reduced over.
struct ProcessGroups {
  /// A process by itself.
  ProcessGroups() = default;
  /// Collective over the world, whose size is the mesh's.
  ProcessGroups(const World& world, const Mesh& mesh);

  Mesh mesh;
  MeshPlace place;        ///< of this process
  Communicator world;     ///< all ranks of the run
  Communicator tensor;    ///< share each layer
  Communicator data;      ///< have the same weights and read different samples (context ranks included)
  Communicator pipeline;  ///< the stages of one replica, in order
  Communicator model;     ///< tensor and pipeline: together they hold all weights
  Communicator ends;      ///< the first and the last stage, which share a tied embedding; alone elsewhere
};

}  // namespace tessera
