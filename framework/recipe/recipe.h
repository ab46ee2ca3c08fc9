#pragma once

#include <string>
#include <vector>

#include "framework/data/dataset_options.h"
#include "framework/optim/clipping.h"
#include "framework/optim/parameter_groups.h"
#include "framework/recipe/shelves.h"
#include "framework/schedule/batch_plan.h"
#include "framework/schedule/optimizer_schedule.h"
#include "framework/training/loss_scale.h"
#include "framework/training/training_options.h"

namespace tessera {

/// All options of one run, typed and checked; nothing built yet.
struct Recipe {
  TrainingOptions training;
  HalfPrecisionOptions half;
  LossScaleOptions loss_scale;

  ModelSizeOptions size;
  PrecisionOptions precision;
  ModelRegistry::Choice model;

  LearningRateOptions learning_rate;
  WeightDecayOptions weight_decay;
  ScheduleResumeOptions schedule_resume;
  ParameterGroupOptions groups;
  ClippingOptions clipping;
  OptimizerRegistry::Choice optimizer;
  DecayRegistry::Choice decay;

  BatchOptions batch;
  BatchRampOptions ramp;
  DatasetRegistry::Choice dataset;
  TokenizerRegistry::Choice tokenizer;
  SamplerRegistry::Choice sampler;

  Value resolved;  ///< every option, its final value and its origin; reads back to this same recipe
  Facts facts;     ///< every option there is, also of what was not chosen: for docs and flag tables

  /// How many samples a step has on so many data parallel ranks.
  BatchSizes batch_sizes(std::int64_t ranks = 1) const;
  /// How long the run is, for schedules; 0 samples when only the data can tell (epochs).
  RunLength length(std::int64_t ranks = 1) const;
  /// Steps of the run; 0 when only the data can tell.
  std::int64_t iterations(std::int64_t ranks = 1) const;
};

/// Read each group of `tree` by the union of its schemas, then ask the rules between options. Use the result
/// only when `report` is good.
Recipe read_recipe(const Value& tree, const Shelves& shelves, Report& report);

/// The recipe in a file with `sets` ("group.key=value") laid over it. What is wrong or to be noted goes to `report`.
Recipe read_recipe(const std::string& file, const std::vector<std::string>& sets, const Shelves& shelves,
                   Report& report);
/// The same; throws ConfigError with all mistakes, a line each.
Recipe read_recipe(const std::string& file, const std::vector<std::string>& sets, const Shelves& shelves);

/// The rules that no option alone can break; recipe/rules.cpp. A rule that looks at an option which `report` already
/// complains of is not asked.
void check_rules(const Recipe& recipe, Report& report);

/// The text of resolved.yaml: every option with its value and where that came from. Training with this file repeats
/// the run.
std::string resolved_yaml(const Recipe& recipe);

/// Every option there is with these shelves.
Facts all_facts(const Shelves& shelves);

}  // namespace tessera
