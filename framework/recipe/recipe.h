#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "framework/data/dataset_options.h"
#include "framework/model/lora_options.h"
#include "framework/model/moe_options.h"
#include "framework/model/preference_objective.h"
#include "framework/optim/clipping.h"
#include "framework/optim/parameter_groups.h"
#include "framework/parallel/data_parallel_options.h"
#include "framework/parallel/layer_plan.h"
#include "framework/parallel/pipeline_schedule.h"
#include "framework/recipe/registries.h"
#include "framework/recipe/trained_layers.h"
#include "framework/resilience/resilience_options.h"
#include "framework/schedule/batch_plan.h"
#include "framework/schedule/optimizer_schedule.h"
#include "framework/training/options/profile_options.h"
#include "framework/training/options/training_options.h"
#include "framework/training/setup/loss_scale.h"
#include "framework/training/state/lora_plan.h"

namespace tessera::recipe {

/// An option that a recipe gives but that has no effect, because of another option. This is not an error, but is seldom
/// intended.
struct Idle {
  std::string option;       ///< "model_config.rotary_base"
  options::Origin at;       ///< where it was given
  std::string why;          ///< "`position_embedding_type` is not rope"
  bool compatible = false;  ///< an option not implemented yet, given with a value that changes nothing
};

/// All options of one run, typed and checked. Nothing is built yet.
struct Recipe {
  training::TrainingOptions training;
  model::ObjectiveRegistry::Choice objective;  ///< with a stage of pairs, that of the stage
  model::PreferenceOptions preference;
  model::HalfPrecisionOptions half;
  training::LossScaleOptions loss_scale;
  training::ProfileOptions profile;
  resilience::ResilienceOptions resilience;

  model::ModelSizeOptions size;
  model::PrecisionOptions precision;
  model::ModelRegistry::Choice model;
  model::MoeOptions moe;
  model::VisionOptions vision;
  /// The model, made from `model`, `size`, `moe` and `vision`; null if the recipe names no registered model_type.
  std::shared_ptr<const model::Architecture> architecture;

  model::LoraOptions lora;
  /// Which layers get adapters, made from `lora`; null: none do.
  std::shared_ptr<const training::LoraPlan> adapters;
  /// What freeze_trainable_layers and the options beside it train; null: freeze_trainable_layers is not given.
  std::shared_ptr<const TrainedLayers> trained_layers;

  parallel::ParallelOptions parallel;
  /// The effective options: zero_level and overlap_grad_reduce of parallel_config are applied.
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
  tokenizers::TokenizerRegistry::Choice tokenizer;
  data::SamplerRegistry::Choice sampler;

  options::Value resolved;  ///< every option, its final value and its origin; reading it gives this recipe again
  options::Facts facts;     ///< all existing options, also of types not chosen; for documentation and flag tables
  checkpoint::CheckpointFormats formats;                      ///< from the registries that the recipe was read with
  std::optional<std::int64_t> replicas_of_order;              ///< for which samples are ordered (keep_global_batch)
  std::vector<RecipeRule> foreign_rules;                      ///< from the registries
  options::Mappings mappings;                                 ///< from the registries
  std::shared_ptr<const Registries> registries;               ///< with which the recipe was read
  std::map<std::string, options::Derived> derived_in_groups;  ///< option -> default derived by its own struct
  std::map<std::string, std::string> idle_in_groups;          ///< option -> why it has no effect, by its own struct

  /// The derived default of `option`, such as "model_config.ffn_hidden_size", computed by the functions that the run
  /// itself calls. Nothing if the option is not null, if null means that the feature is off, or if mistakes in the
  /// recipe prevent the computation. May read the files of the tokenizer.
  std::optional<options::Derived> derived(const std::string& option) const;
  /// All given options that have no effect, group by group, including options not implemented yet. Requires a recipe
  /// without mistakes. Options of a type not chosen are not listed: reading the recipe reports them.
  std::vector<Idle> without_effect() const;

  /// The layers of each pipeline stage. Throws ConfigError if parallel_config does not fit the model.
  parallel::LayerPlan layer_plan() const;
  /// The pipeline schedule's dimensions for one step of the global batch on each of `ranks` data-parallel ranks.
  parallel::PipelineShape pipeline_shape(std::int64_t ranks = 1) const;
  /// Number of experts of each mixture-of-experts layer; 0: the model has none.
  std::int64_t experts() const { return architecture ? architecture->experts() : 0; }
  /// Whether some parameters may be frozen.
  bool may_freeze() const { return lora.use_lora || training.may_freeze(); }
  /// Leaves out adapters and whatever freezes parameters. `resolved` is not changed.
  void train_everything();
  /// Whether checkpoints have the frozen parameters too (save_frozen_parameters).
  bool saves_frozen() const;
  /// The least number of key/value groups of a layer (CutExtents::least_groups), for ProcessGroups.
  std::int64_t query_groups() const;
  /// The pipeline stage with the token embedding. The layer plan must be without mistakes.
  std::int64_t embedding_stage() const;

  /// The stage, if its samples are pairs of completions.
  std::optional<model::PairStage> pair_stage() const { return model::pair_stage(training.stage.value_or("pt")); }
  /// Whether a reference model computes log-probabilities.
  bool needs_reference() const { return pair_stage() == model::PairStage::dpo; }
  /// Whether load_checkpoint is null or the run's own folder: once the run has saved a checkpoint there, it is not what
  /// the run began with.
  bool continues_itself() const;
  /// Folder of the reference model: ref_model, else the run's folder if refer_model_iter names one of its checkpoints,
  /// else what the run begins with: pretrained_checkpoint if continues_itself(), else load_checkpoint.
  std::optional<std::string> reference_folder() const;
  /// The learning rates of LoRA+; none: all adapters have that of the schedule.
  std::optional<optim::LoraPlus> lora_plus() const;
  /// Rows of a micro-batch that each sample fills (data::Dataset::rows_per_sample).
  std::int64_t rows_per_sample() const { return registries->datasets.rows_per_sample(dataset); }
  /// The micro-batch size and global batch size, in samples, on `ranks` data-parallel ranks.
  schedule::BatchSizes batch_sizes(std::int64_t ranks = 1) const;
  /// Length of the run on `ranks` data-parallel ranks, for schedules; 0 samples if it depends on the data (epochs).
  /// Throws ConfigError for the counts that `uncountable` (recipe/rules.h) rejects.
  schedule::RunLength length(std::int64_t ranks = 1) const;
  /// Number of steps of the run; 0 if it depends on the data (epochs).
  std::int64_t iterations(std::int64_t ranks = 1) const;
};

/// Reads each group of `tree` with all its schemas, then checks the rules between options. Mistakes and notes go to
/// `report`; the result is valid only if report.good().
Recipe read_recipe(const options::Value& tree, const Registries& registries, options::Report& report);

/// Reads the recipe in `file`, with `sets` ("group.key=value") applied. Mistakes and notes go to `report`.
Recipe read_recipe(const std::string& file, const std::vector<std::string>& sets, const Registries& registries,
                   options::Report& report);
/// Reads a recipe in the same way; throws ConfigError with all mistakes, one per line.
Recipe read_recipe(const std::string& file, const std::vector<std::string>& sets, const Registries& registries);

/// Checks the rules between several options (recipe/rules.cpp). A rule about an option for which `report` already has a
/// problem is not checked.
void check_rules(const Recipe& recipe, options::Report& report);

/// Checks the rules that depend on the number of ranks, `world`. `recipe` must have no other mistakes.
void check_ranks(const Recipe& recipe, std::int64_t world, options::Report& report);
/// Checks the same rules; throws ConfigError with all violations, one per line.
void check_ranks(const Recipe& recipe, std::int64_t world);

/// Sets the global batch size to the one that `recipe` has on `full` ranks, so that another number of ranks keeps it
/// and changes the number of micro-batches instead, and keeps the order of samples that depends on the number of ranks.
/// `resolved` is not changed. `recipe` has no mistakes on `full` ranks.
void keep_global_batch(Recipe& recipe, std::int64_t full);
/// All numbers of ranks up to `full`, ascending, on which `recipe` has no mistakes if it keeps the global batch size
/// that it has on `full` ranks, and on which every step has as many samples.
std::vector<std::int64_t> numbers_of_ranks(const Recipe& recipe, std::int64_t full);

/// The text of resolved.yaml: every option with its value and origin. Training with this file repeats the run.
std::string resolved_yaml(const Recipe& recipe);

/// All options that exist with these registries.
options::Facts all_facts(const Registries& registries);

}  // namespace tessera::recipe
