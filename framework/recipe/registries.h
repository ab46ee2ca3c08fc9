#pragma once

#include "framework/checkpoint/format.h"
#include "framework/data/dataset.h"
#include "framework/data/tokenizers/tokenizer.h"
#include "framework/model/model.h"
#include "framework/optim/optimizer.h"
#include "framework/options/mappings.h"
#include "framework/schedule/schedule.h"

namespace tessera {

/// What can be chosen by name, and the tables of other programs' names. A user's own file registers its things here
/// and hands them to `run`.
struct Registries {
  ModelRegistry models = tessera::models();
  OptimizerRegistry optimizers = tessera::optimizers();
  DecayRegistry decays = tessera::decays();
  DatasetRegistry datasets = tessera::datasets();
  TokenizerRegistry tokenizers = tessera::tokenizers();
  SamplerRegistry samplers = tessera::samplers();
  CheckpointFormats formats;  ///< of other programs; none unless registered
  Mappings mappings;          ///< compiled in, or those of --mappings DIR
};

}  // namespace tessera
