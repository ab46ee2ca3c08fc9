#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "framework/data/dataset.h"
#include "framework/data/dataset_options.h"
#include "framework/data/quarantine.h"
#include "framework/schedule/batch_plan.h"
#include "framework/tokenizers/tokenizer.h"

namespace tessera::training {

/// What a run reads, in which order and batch sizes, and how long the run is. Owns all objects.
struct RunData {
  data::BatchOptions batch;
  schedule::BatchPlan batch_plan;
  /// Null: the run has none. Declared before `splits`, which may encode text while it is read.
  std::unique_ptr<tokenizers::Tokenizer> tokenizer;
  std::unique_ptr<data::DataSplits> splits;                             ///< `train` is never null
  std::unique_ptr<data::Quarantines> quarantines;                       ///< bad samples; the orders replace them
  std::unique_ptr<data::Sampler> train_order, valid_order, test_order;  ///< null if the split does not exist
  std::vector<std::unique_ptr<data::Sampler>> valid_set_orders;         ///< one for each of `splits->valid_sets`
  std::int64_t iterations = 0;                                          ///< number of steps of the run
  std::int64_t epoch_samples = 0;  ///< samples of one epoch of the training split; 0: epochs are not counted
  bool has_tokens = true;          ///< false: a pipeline stage that reads no data
};

}  // namespace tessera::training
