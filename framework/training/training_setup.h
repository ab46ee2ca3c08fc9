#pragma once

#include <functional>
#include <string>
#include <vector>

#include "framework/checkpoint/format.h"
#include "framework/options/mappings.h"
#include "framework/resilience/resilience_options.h"
#include "framework/training/model_setup.h"
#include "framework/training/optimization_setup.h"
#include "framework/training/profile_options.h"
#include "framework/training/run_data.h"
#include "framework/training/training_options.h"

namespace tessera::training {

/// What a run writes about itself.
struct RunDocuments {
  std::string resolved_recipe;  ///< written into the run folder as resolved.yaml; repeats the run
  /// On the recipe; kept in resolved.yaml, so that the next start does not repeat them.
  std::vector<std::string> notes;
  checkpoint::Blobs files;  ///< saved in every checkpoint: the resolved recipe, the tokenizer's files
  options::Value recipe;    ///< the resolved recipe, for formats of checkpoints that describe it

  checkpoint::CheckpointFormats formats;  ///< of other programs
  options::Mappings mappings;             ///< other programs' names of weights and arguments

  /// What differs between the resolved recipe saved in a checkpoint and this one, a line for each option.
  std::function<std::string(const checkpoint::Blobs& saved)> recipe_differences;
  /// Whether the text of a resolved recipe is this one, comments aside.
  std::function<bool(const std::string& resolved)> same_recipe;
};

/// A run, checked and constructed; the trainer, which owns it, does not know the recipe.
struct TrainingSetup {
  TrainingOptions options;
  resilience::ResilienceOptions resilience;
  ProfileOptions profile;
  ModelSetup model;
  OptimizationSetup optimization;
  RunData data;
  RunDocuments documents;
};

}  // namespace tessera::training
