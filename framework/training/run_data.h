#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "framework/data/dataset.h"
#include "framework/data/dataset_options.h"
#include "framework/data/quarantine.h"
#include "framework/data/tokenizers/tokenizer.h"
#include "framework/schedule/batch_plan.h"

namespace tessera::training {

/// What a run reads, in which order and in batches of which size, and with that how long it is. Owns everything.
struct RunData {
  data::BatchOptions batch;
  schedule::BatchPlan batch_plan;
  std::unique_ptr<data::Tokenizer>
      tokenizer;  ///< null: the run has none. Before `splits`, which may encode text while read
  std::unique_ptr<data::DataSplits> splits;                             ///< `train` is never null
  std::unique_ptr<data::Quarantines> quarantines;                       ///< of all splits; the orders replace samples
  std::unique_ptr<data::Sampler> train_order, valid_order, test_order;  ///< null where there is no such split
  std::vector<std::unique_ptr<data::Sampler>> valid_set_orders;         ///< of `splits->valid_sets`
  std::int64_t iterations = 0;                                          ///< steps of the run
  std::int64_t epoch_samples = 0;  ///< of one pass over the training split; 0: passes are not counted
  bool has_tokens = true;          ///< false: a pipeline stage that reads no data
};

}  // namespace tessera::training
