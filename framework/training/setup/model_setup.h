#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "framework/checkpoint/checkpoint.h"
#include "framework/checkpoint/format.h"
#include "framework/model/model.h"
#include "framework/parallel/layer_plan.h"
#include "framework/parallel/process_groups.h"
#include "framework/training/setup/reference_model.h"
#include "framework/training/state/trained_names.h"

namespace tessera::training {

/// This rank's part of the model, and its position in the parallel layout. Owns the chunks; their weights are in memory
/// of ModelState.
struct ModelSetup {
  parallel::ProcessGroups processes;
  parallel::LayerPlan plan;
  std::int64_t micro_batch_group = 0;                 ///< microbatch_group_size_per_vp_stage; 0: number of stages
  std::vector<std::unique_ptr<model::Model>> chunks;  ///< of this rank's pipeline stage
  model::Precision precision;
  TrainedNames trained;                                 ///< decides Parameter::trained of all chunks
  std::int64_t parameters = 0, trained_parameters = 0;  ///< elements of the whole model
  /// Number of chunks at the beginning of the model, in the order of the forward pass, without trained parameters.
  std::int64_t frozen_chunks = 0;
  /// Names and shapes of all weights of the model; empty: this rank has the whole model.
  std::vector<checkpoint::TensorRange> all_weights;
  std::unique_ptr<ReferenceModel> reference;  ///< null: the objective needs none
  /// Opens lora_config.adapter for the base model that load_checkpoint names; null: adapters are new.
  std::function<std::unique_ptr<checkpoint::WeightSource>(const checkpoint::OpenedCheckpoint& base)> open_adapter;
  bool caches_reference = false;  ///< preference_config.cache_reference
  bool weights_alone = false;     ///< of load_checkpoint, which is pretrained_checkpoint, only the weights are loaded
  bool upcycles = false;    ///< load_checkpoint is a dense model whose feed-forward networks are copied into experts
  std::int64_t tokens = 0;  ///< rows of the vocabulary without padding; 0: unknown

  /// The first chunk; in a run with one stage and one chunk, the whole model.
  model::Model& first() const { return *chunks.front(); }
};

}  // namespace tessera::training
