#pragma once

#include <memory>
#include <vector>

#include "framework/checkpoint/format.h"
#include "framework/data/dataset.h"
#include "framework/model/architecture.h"
#include "framework/model/objective.h"
#include "framework/optim/optimizer.h"
#include "framework/options/mappings.h"
#include "framework/schedule/schedule.h"
#include "framework/tokenizers/tokenizer.h"

namespace tessera::options {
class Report;
}

namespace tessera::recipe {

struct Recipe;
class AdapterReader;

/// A rule between options that is added by a higher component. It reports violations to `report`, as the rules of
/// recipe/rules.cpp do.
using RecipeRule = void (*)(const Recipe& recipe, options::Report& report);

/// The registry with every built-in dataset.
data::DatasetRegistry datasets();

/// The types that recipes can choose by name, and the tables of other programs' names. A program that extends Tessera
/// registers its types here and passes the object to `run` (cli/run.h).
struct Registries {
  model::ModelRegistry models = tessera::model::models();
  model::ObjectiveRegistry objectives = tessera::model::objectives();
  optim::OptimizerRegistry optimizers = tessera::optim::optimizers();
  schedule::DecayRegistry decays = tessera::schedule::decays();
  data::DatasetRegistry datasets = tessera::recipe::datasets();
  tokenizers::TokenizerRegistry tokenizers = tessera::tokenizers::tokenizers();
  data::SamplerRegistry samplers = tessera::data::samplers();
  checkpoint::CheckpointFormats formats;          ///< other programs' checkpoint formats; empty unless registered
  std::shared_ptr<const AdapterReader> adapters;  ///< reads adapters of PEFT; null unless registered
  std::vector<RecipeRule> rules;                  ///< rules about other programs' options; empty unless registered
  options::Mappings mappings;                     ///< the compiled-in tables, or those of --mappings DIR
};

}  // namespace tessera::recipe
