#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "framework/data/dataset_options.h"
#include "framework/model/moe_options.h"
#include "framework/optim/clipping.h"
#include "framework/optim/parameter_groups.h"
#include "framework/parallel/data_parallel_options.h"
#include "framework/parallel/layer_plan.h"
#include "framework/parallel/pipeline_schedule.h"
#include "framework/recipe/registries.h"
#include "framework/resilience/resilience_options.h"
#include "framework/schedule/batch_plan.h"
#include "framework/schedule/optimizer_schedule.h"
#include "framework/training/loss_scale.h"
#include "framework/training/profile_options.h"
#include "framework/training/training_options.h"

namespace tessera::recipe {

/// An option that a recipe gives and nobody reads, because of what the recipe says elsewhere. That is no mistake, and
/// seldom meant.
struct Idle {
  std::string option;       ///< "model_config.rotary_base"
  options::Origin at;       ///< where it was given
  std::string why;          ///< "`position_embedding_type` is not rope"
  bool compatible = false;  ///< accepted for compatibility only: not implemented yet, with a value that changes nothing
};

/// All options of one run, typed and checked; nothing built yet.
struct Recipe {
  training::TrainingOptions training;
  model::HalfPrecisionOptions half;
  training::LossScaleOptions loss_scale;
  training::ProfileOptions profile;
  resilience::ResilienceOptions resilience;

  model::ModelSizeOptions size;
  model::PrecisionOptions precision;
  model::ModelRegistry::Choice model;
  model::MoeOptions moe;

  parallel::ParallelOptions parallel;
  /// parallel_config's zero_level and overlap_grad_reduce are applied: what the run does.
  parallel::DataParallelOptions data_parallel;
  parallel::ParameterGatherOptions parameter_gather;

  schedule::LearningRateOptions learning_rate;
  schedule::WeightDecayOptions weight_decay;
  schedule::ScheduleResumeOptions schedule_resume;
  optim::ParameterGroupOptions groups;
  optim::ClippingOptions clipping;
  optim::OptimizerRegistry::Choice optimizer;
  schedule::DecayRegistry::Choice decay;

  data::BatchOptions batch;
  schedule::BatchRampOptions ramp;
  data::DatasetRegistry::Choice dataset;
  data::TokenizerRegistry::Choice tokenizer;
  data::SamplerRegistry::Choice sampler;

  options::Value resolved;  ///< every option, its final value and its origin; reads back to this same recipe
  options::Facts facts;     ///< every option there is, also of what was not chosen: for docs and flag tables
  checkpoint::CheckpointFormats formats;                      ///< of the registries that it was read with
  std::vector<RecipeRule> foreign_rules;                      ///< the same
  options::Mappings mappings;                                 ///< the same
  std::map<std::string, options::Derived> derived_in_groups;  ///< option -> what its own struct derives for it
  std::map<std::string, std::string> idle_in_groups;          ///< option -> why it has no effect by its own struct

  /// What stands for the option, "model_config.ffn_hidden_size", if it is null, by the functions that the run itself
  /// calls. None when it has a value, when null just means that there is none of it, or when the recipe is too wrong to
  /// tell. May read the files of the tokenizer.
  std::optional<options::Derived> derived(const std::string& option) const;
  /// All options without effect of a recipe without mistakes, group by group, and those not implemented yet. Options of
  /// a type not chosen are not among them: reading a recipe tells those.
  std::vector<Idle> without_effect() const;

  /// Which stage holds which layers. Throws ConfigError when parallel_config does not fit the model.
  parallel::LayerPlan layer_plan() const;
  /// What a step of the whole batch has to do on each of so many data parallel ranks.
  parallel::PipelineShape pipeline_shape(std::int64_t ranks = 1) const;
  /// Experts of each layer that has some; 0: the model has none.
  std::int64_t experts() const;

  /// How many samples a step has on so many data parallel ranks.
  schedule::BatchSizes batch_sizes(std::int64_t ranks = 1) const;
  /// How long the run is, for schedules; 0 samples when only the data can tell (epochs). Throws ConfigError for numbers
  /// that `uncountable` of recipe/rules.h speaks of.
  schedule::RunLength length(std::int64_t ranks = 1) const;
  /// Steps of the run; 0 when only the data can tell.
  std::int64_t iterations(std::int64_t ranks = 1) const;
};

/// Read each group of `tree` by the union of its schemas, then ask the rules between options. Use the result
/// only when `report` is good.
Recipe read_recipe(const options::Value& tree, const Registries& registries, options::Report& report);

/// The recipe in a file with `sets` ("group.key=value") laid over it. What is wrong or to be noted goes to `report`.
Recipe read_recipe(const std::string& file, const std::vector<std::string>& sets, const Registries& registries,
                   options::Report& report);
/// The same; throws ConfigError with all mistakes, a line each.
Recipe read_recipe(const std::string& file, const std::vector<std::string>& sets, const Registries& registries);

/// The rules that no option alone can break; recipe/rules.cpp. A rule that looks at an option which `report` already
/// complains of is not asked.
void check_rules(const Recipe& recipe, options::Report& report);

/// The rules that need the number of processes, `world`. `recipe` has no other mistakes.
void check_ranks(const Recipe& recipe, std::int64_t world, options::Report& report);
/// The same; throws ConfigError with all mistakes, a line each.
void check_ranks(const Recipe& recipe, std::int64_t world);

/// Change the number of micro-batches so that a step has as many samples on any number of ranks as `recipe` says for
/// `full`. `resolved` stays what was given. `recipe` has no mistakes on `full` ranks.
void keep_global_batch(Recipe& recipe, std::int64_t full);
/// The numbers of ranks up to `full`, ascending, on which `recipe` has no mistakes when it keeps the global batch of
/// `full` ranks.
std::vector<std::int64_t> numbers_of_ranks(const Recipe& recipe, std::int64_t full);

/// The text of resolved.yaml: every option with its value and where that came from. Training with this file repeats
/// the run.
std::string resolved_yaml(const Recipe& recipe);

/// Every option there is with these registries.
options::Facts all_facts(const Registries& registries);

}  // namespace tessera::recipe
