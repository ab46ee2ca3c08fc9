#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "framework/base/json.h"
#include "framework/checkpoint/format.h"
#include "framework/options/mappings.h"
#include "framework/resilience/resilience_options.h"
#include "framework/training/options/option_changes.h"
#include "framework/training/options/profile_options.h"
#include "framework/training/options/training_options.h"
#include "framework/training/setup/model_setup.h"
#include "framework/training/setup/optimization_setup.h"
#include "framework/training/setup/run_data.h"

namespace tessera::training {

/// Texts and files with which a run describes itself.
struct RunDocuments {
  std::string resolved_recipe;  ///< written to the run folder as resolved.yaml; reproduces the run
  /// Remarks on the recipe; kept in resolved.yaml, so that the next start does not repeat them.
  std::vector<std::string> notes;
  checkpoint::Blobs files;  ///< saved in every checkpoint: the resolved recipe and the tokenizer's files
  options::Value recipe;    ///< the resolved recipe, for checkpoint formats that describe it
  /// What run.json tells of the run and only its caller knows: command, version, layout, data, foreseen memory. See
  /// docs/metrics.md.
  Json facts = Json::object();

  checkpoint::CheckpointFormats formats;  ///< other programs' checkpoint formats
  options::Mappings mappings;             ///< other programs' names of weights and arguments

  /// Compares the recipe with that of a checkpoint: the resolved recipe among its files `saved`, else `described`,
  /// which may have only some of the options. Returns the options that differ; nothing if there is no recipe to compare
  /// with. Null: the recipe is not known.
  std::function<std::optional<std::vector<OptionChange>>(const checkpoint::Blobs& saved,
                                                         const options::Value* described)>
      changes_since;
  /// Returns whether the text of a resolved recipe is equal to this one, apart from comments.
  std::function<bool(const std::string& resolved)> same_recipe;
};

/// A run that was checked and constructed. The trainer owns it and does not know the recipe.
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
