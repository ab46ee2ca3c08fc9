#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "framework/checkpoint/checkpoint.h"
#include "framework/model/model.h"
#include "framework/parallel/layer_plan.h"
#include "framework/parallel/process_groups.h"

namespace tessera::training {

/// This rank's part of the model, and its place in the parallel layout. Owns the chunks; their weights are
/// ModelState's.
struct ModelSetup {
  parallel::ProcessGroups processes;
  parallel::LayerPlan plan;
  std::int64_t micro_batch_group = 0;                 ///< microbatch_group_size_per_vp_stage; 0: as many as stages
  std::vector<std::unique_ptr<model::Model>> chunks;  ///< of this rank's pipeline stage
  model::Precision precision;
  /// Names and shapes of the whole model; empty: this rank has all of it.
  std::vector<checkpoint::TensorRange> all_weights;
  bool upcycles = false;    ///< load_checkpoint is of a dense model, whose networks are copied into the experts
  std::int64_t tokens = 0;  ///< rows of the vocabulary without padding; 0: not known

  /// The first chunk: the whole model in a run of one stage.
  model::Model& first() const { return *chunks.front(); }
};

}  // namespace tessera::training
