#pragma once

#include <functional>
#include <memory>

#include "framework/checkpoint/checkpoint.h"
#include "framework/checkpoint/format.h"
#include "framework/data/dataset.h"
#include "framework/data/dataset_options.h"
#include "framework/data/tokenizers/tokenizer.h"
#include "framework/model/model.h"
#include "framework/optim/clipping.h"
#include "framework/optim/optimizer.h"
#include "framework/optim/parameter_groups.h"
#include "framework/options/mappings.h"
#include "framework/parallel/data_parallel_options.h"
#include "framework/parallel/layer_plan.h"
#include "framework/parallel/process_groups.h"
#include "framework/schedule/batch_plan.h"
#include "framework/schedule/optimizer_schedule.h"
#include "framework/training/loss_scale.h"
#include "framework/training/training_options.h"

namespace tessera {

/// What a run is made of, all checked and built; the trainer knows no recipe. Owns everything. The schedule and the
/// loss scaler change from step to step and go into every checkpoint; the rest stays as it is.
struct Parts {
  TrainingOptions options;
  BatchOptions batch;
  BatchPlan batch_plan;
  ClippingOptions clipping;
  ProcessGroups processes;
  LayerPlan plan;
  std::int64_t micro_batch_group = 0;  ///< microbatch_group_size_per_vp_stage; 0: as many as stages
  DataParallelOptions data_parallel;
  ParameterGatherOptions parameter_gather;
  std::vector<std::unique_ptr<Model>> chunks;  ///< of this process's pipeline stage
  std::vector<TensorRange> all_weights;        ///< names and shapes of the whole model; empty: it is all here
  std::int64_t tokens = 0;                     ///< rows of the vocabulary that are no padding; 0: not known
  Model& model() const { return *chunks.front(); }
  Precision precision;
  std::unique_ptr<Optimizer> optimizer;
  ParameterGroupOptions groups;
  std::unique_ptr<OptimizerSchedule> schedule;
  ScheduleResumeOptions schedule_resume;
  LossScaler loss_scaler;
  std::unique_ptr<Tokenizer>
      tokenizer;  ///< null: the run has none. Before `data`, which may encode text while it is read
  std::unique_ptr<DataSplits> data;
  std::unique_ptr<Sampler> train_order, valid_order, test_order;  ///< null where there is no such split
  std::vector<std::unique_ptr<Sampler>> valid_set_orders;         ///< of `data->valid_sets`
  std::int64_t epoch_samples = 0;  ///< of one pass over the training split; 0: passes are not counted
  std::string resolved_recipe;     ///< written into the run folder as resolved.yaml; repeats the run
  /// On the recipe; kept in resolved.yaml, so that the next start does not repeat them.
  std::vector<std::string> notes;
  Value recipe;               ///< the resolved recipe, for formats of checkpoints that describe it
  CheckpointFormats formats;  ///< of other programs
  Mappings mappings;          ///< other programs' names of weights and arguments
  /// What differs between the resolved recipe saved in a checkpoint and this one, a line for each option.
  std::function<std::string(const Blobs& saved)> recipe_differences;
  /// Whether the text of a resolved recipe is this one, comments aside.
  std::function<bool(const std::string& resolved)> same_recipe;
  Blobs files;  ///< saved in every checkpoint: the resolved recipe, the tokenizer's files
};

}  // namespace tessera
