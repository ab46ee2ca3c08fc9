#pragma once

#include <vector>

#include "framework/checkpoint/format.h"
#include "framework/data/dataset.h"
#include "framework/data/tokenizers/tokenizer.h"
#include "framework/model/model.h"
#include "framework/optim/optimizer.h"
#include "framework/options/mappings.h"
#include "framework/schedule/schedule.h"

namespace tessera::options {
class Report;
}

namespace tessera::recipe {

struct Recipe;

/// A rule between options that a component above adds: it reports what does not hold, as those of recipe/rules.cpp do.
using RecipeRule = void (*)(const Recipe& recipe, options::Report& report);

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
  std::vector<RecipeRule> rules;          ///< about other programs' options; none unless registered
  options::Mappings mappings;             ///< compiled in, or those of --mappings DIR
};

}  // namespace tessera::recipe
