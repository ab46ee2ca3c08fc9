#pragma once

#include <memory>

#include "framework/checkpoint/checkpoint.h"
#include "framework/data/dataset.h"
#include "framework/data/dataset_options.h"
#include "framework/model/model.h"
#include "framework/optim/clipping.h"
#include "framework/optim/optimizer.h"
#include "framework/schedule/schedule.h"
#include "framework/training/training_options.h"

namespace tessera {

/// What a run is made of, all checked and built; the trainer knows no recipe. Owns everything.
struct Parts {
  TrainingOptions options;
  BatchOptions batch;
  ClippingOptions clipping;
  std::unique_ptr<Model> model;
  std::unique_ptr<Optimizer> optimizer;
  std::unique_ptr<LearningRate> learning_rate;
  std::unique_ptr<WeightDecay> weight_decay;
  std::unique_ptr<DataSplits> data;
  std::unique_ptr<Sampler> train_order, valid_order, test_order;  ///< null where there is no such split
  std::string resolved_recipe;  ///< written into the run folder as resolved.yaml; repeats the run
  Blobs files;                  ///< saved in every checkpoint: the resolved recipe, the tokenizer's files
};

}  // namespace tessera
