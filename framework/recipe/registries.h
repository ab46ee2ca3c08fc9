#pragma once

#include "framework/checkpoint/format.h"
#include "framework/data/dataset.h"
#include "framework/data/tokenizers/tokenizer.h"
#include "framework/model/model.h"
#include "framework/optim/optimizer.h"
#include "framework/options/mappings.h"
#include "framework/schedule/schedule.h"

namespace tessera::recipe {

/// What can be chosen by name, and the tables of other programs' names. A user's own file registers its things here
/// and hands them to `run`.
struct Registries {
  model::ModelRegistry models = tessera::model::models();
  optim::OptimizerRegistry optimizers = tessera::optim::optimizers();
  schedule::DecayRegistry decays = tessera::schedule::decays();
  data::DatasetRegistry datasets = tessera::data::datasets();
  data::TokenizerRegistry tokenizers = tessera::data::tokenizers();
  data::SamplerRegistry samplers = tessera::data::samplers();
  checkpoint::CheckpointFormats formats;  ///< of other programs; none unless registered
  options::Mappings mappings;             ///< compiled in, or those of --mappings DIR
};

}  // namespace tessera::recipe
