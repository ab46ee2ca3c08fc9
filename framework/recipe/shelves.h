#pragma once

#include "framework/data/dataset.h"
#include "framework/data/tokenizer.h"
#include "framework/model/model.h"
#include "framework/optim/optimizer.h"
#include "framework/schedule/schedule.h"

namespace tessera {

/// What can be chosen by name. A user's own file puts its things on these and hands them to `run`.
struct Shelves {
  ModelRegistry models = tessera::models();
  OptimizerRegistry optimizers = tessera::optimizers();
  DecayRegistry decays = tessera::decays();
  DatasetRegistry datasets = tessera::datasets();
  TokenizerRegistry tokenizers = tessera::tokenizers();
  SamplerRegistry samplers = tessera::samplers();
};

}  // namespace tessera
