#include "framework/recipe/recipe.h"

#include "framework/base/checked.h"
#include "framework/data/samplers/external_sampler.h"
#include "framework/options/yaml.h"
#include "framework/recipe/describe.h"
#include "framework/recipe/imported_recipe.h"
#include "framework/recipe/module_aliases.h"
#include "framework/recipe/planned_options.h"
#include "framework/training/setup/given_checkpoint.h"

namespace tessera::recipe {
namespace {

bool is_nested_form(const std::string& group) { return group == "train_config" || group == "accelerate_config"; }

void report_unknown_groups(const options::Value& tree, const options::Facts& facts, options::Report& report) {
  std::vector<std::string> known;
  for (const auto& group : facts) known.push_back(group.first);
  for (const auto& [name, value] : tree.fields) {
    if (facts.count(name)) continue;
    const auto hint = options::did_you_mean(name, known);
    if (is_nested_form(name))
      report.problem(value.origin, name,
                     text("'", name, "' is a group of a nested recipe, in a file with groups of ours"),
                     "write training_config, model_config, parallel_config, optimizer_config, dataset_config");
    else
      report.problem(value.origin, name, text("no group '", name, "'"),
                     hint.empty() ? "`tessera options` lists them" : hint);
  }
}

/// Makes the plan of adapters, unless there is a mistake in its options.
void add_adapters(Recipe& recipe, options::Report& report) {
  if (!recipe.lora.use_lora || !report.good()) return;
  try {
    recipe.adapters =
        std::make_shared<const training::LoraPlan>(recipe.lora, module_aliases(recipe), module_list(recipe));
  } catch (const ConfigError& error) {
    const auto* group = recipe.resolved.at("lora_config.use_lora");
    report.problem(group ? group->origin : options::Origin{}, "lora_config", error.what(), "give a regular expression",
                   "LoRA targets");
  }
}

std::int64_t decoder_layers(const Recipe& recipe) {
  const auto towers = recipe.architecture->towers();
  if (!towers) return 0;
  for (const auto& tower : towers->all())
    if (tower.name == "decoder") return tower.layers;
  return 0;
}

void add_trained_layers(Recipe& recipe, const options::Report& report) {
  if (!recipe.training.freeze_trainable_layers || !report.good()) return;
  recipe.trained_layers =
      std::make_shared<const TrainedLayers>(recipe.training, decoder_layers(recipe), module_aliases(recipe));
}

void read_training(Recipe& recipe, const Registries& registries, options::Group& group) {
  recipe.training = options::read_own<training::TrainingOptions>(group);
  recipe.objective = registries.objectives.read(group);
  recipe.half = options::read_own<model::HalfPrecisionOptions>(group);
  recipe.loss_scale = options::read_own<training::LossScaleOptions>(group);
  recipe.data_parallel = options::read_own<parallel::DataParallelOptions>(group);
  recipe.profile = options::read_own<training::ProfileOptions>(group);
  recipe.mappings.ignore_keys(recipe.training.ignore_config_keys);
}

void read_preference(Recipe& recipe, options::Group& group) {
  recipe.preference = options::read_own<model::PreferenceOptions>(group);
  if (const auto stage = recipe.pair_stage())
    recipe.objective.make = [stage = *stage, o = recipe.preference] { return make_preference_objective(stage, o); };
}

void read_parallel(Recipe& recipe, options::Group& group) {
  recipe.parallel = options::read_own<parallel::ParallelOptions>(group);
  auto& overlap = recipe.data_parallel.overlap_grad_reduce;
  overlap = recipe.parallel.overlap_grad_reduce.value_or(overlap);
  if (recipe.parallel.zero_level) recipe.data_parallel.use_distributed_optimizer = true;
}

void read_optimizer(Recipe& recipe, const Registries& registries, options::Group& group) {
  recipe.optimizer = registries.optimizers.read(group);
  recipe.learning_rate = options::read_own<schedule::LearningRateOptions>(group);
  recipe.decay = registries.decays.read(group);
  recipe.weight_decay = options::read_own<schedule::WeightDecayOptions>(group);
  recipe.schedule_resume = options::read_own<schedule::ScheduleResumeOptions>(group);
  recipe.groups = options::read_own<optim::ParameterGroupOptions>(group);
  recipe.clipping = options::read_own<optim::ClippingOptions>(group);
  recipe.parameter_gather = options::read_own<parallel::ParameterGatherOptions>(group);
}

void read_dataset(Recipe& recipe, const Registries& registries, options::Group& group) {
  recipe.dataset = registries.datasets.read(group);
  recipe.tokenizer = registries.tokenizers.read(group);
  recipe.sampler = data::with_external(registries.samplers).read(group);
  if (data::external_is_missing(recipe.sampler))
    group.problem(group.resolved().at("dataloader_type")->origin, "dataloader_type",
                  "dataloader_type external: no sampler is registered under this name", data::how_to_register_external);
  recipe.batch = options::read_own<data::BatchOptions>(group);
  recipe.ramp = options::read_own<schedule::BatchRampOptions>(group);
}

}  // namespace

Recipe read_recipe(const options::Value& tree, const Registries& registries, options::Report& report) {
  Recipe recipe;
  recipe.formats = registries.formats;
  recipe.foreign_rules = registries.rules;
  recipe.mappings = registries.mappings;
  recipe.registries = std::make_shared<const Registries>(registries);
  const auto read = [&](const std::string& name, const auto& schemas) {
    options::Group group(tree, name, report);
    schemas(group);
    planned_options().read(group);
    group.finish();
    recipe.derived_in_groups.insert(group.derived().begin(), group.derived().end());
    recipe.idle_in_groups.insert(group.idle().begin(), group.idle().end());
    recipe.facts[name] = group.schemas();
    recipe.resolved.set(name, group.resolved());
  };
  using Group = options::Group;
  read("training_config", [&](Group& group) { read_training(recipe, registries, group); });
  read("preference_config", [&](Group& group) { read_preference(recipe, group); });
  read("resilience_config",
       [&](Group& group) { recipe.resilience = options::read_own<resilience::ResilienceOptions>(group); });
  read("model_config", [&](Group& group) {
    recipe.model = registries.models.read(group);
    recipe.size = options::read_own<model::ModelSizeOptions>(group);
    recipe.precision = options::read_own<model::PrecisionOptions>(group);
  });
  read("moe_config", [&](Group& group) { recipe.moe = options::read_own<model::MoeOptions>(group); });
  read("vision_config", [&](Group& group) { recipe.vision = options::read_own<model::VisionOptions>(group); });
  if (recipe.model.make) recipe.architecture = recipe.model.make({recipe.size.seq_length, recipe.moe, recipe.vision});
  read("lora_config", [&](Group& group) { recipe.lora = options::read_own<model::LoraOptions>(group); });
  read("parallel_config", [&](Group& group) { read_parallel(recipe, group); });
  read("optimizer_config", [&](Group& group) { read_optimizer(recipe, registries, group); });
  read("dataset_config", [&](Group& group) { read_dataset(recipe, registries, group); });
  for (const auto& group : planned_options().groups())
    if (!recipe.facts.count(group)) read(group, [](options::Group&) {});
  recipe_schema().complete(recipe.facts);
  report_unknown_groups(tree, recipe.facts, report);
  add_adapters(recipe, report);
  add_trained_layers(recipe, report);
  if (report.complete()) check_rules(recipe, report);
  return recipe;
}

Recipe read_recipe(const std::string& file, const std::vector<std::string>& sets, const Registries& registries,
                   options::Report& report) {
  auto tree = options::read_yaml(file, sets, report);
  lay_on_given_model(tree, registries, report);
  return read_recipe(tree, registries, report);
}

Recipe read_recipe(const std::string& file, const std::vector<std::string>& sets, const Registries& registries) {
  options::Report report;
  auto recipe = read_recipe(file, sets, registries, report);
  report.must_be_good();
  return recipe;
}

parallel::LayerPlan Recipe::layer_plan() const {
  const auto towers = architecture ? architecture->towers() : std::nullopt;
  return towers ? parallel::LayerPlan(parallel, *towers) : parallel::LayerPlan();
}

void Recipe::train_everything() {
  adapters = nullptr;
  trained_layers = nullptr;
  lora = {};
  training.frozen_parameters.clear();
  training.trainable_parameters.clear();
  training.freeze_trainable_layers.reset();
  training.freeze_all_layers = false;
}

bool Recipe::saves_frozen() const {
  return training.save_frozen_parameters.value_or(!lora.use_lora || !training.load_checkpoint);
}

std::int64_t Recipe::query_groups() const {
  return architecture->cut_extents([](const std::string&) { return false; }).least_groups();
}

std::int64_t Recipe::embedding_stage() const {
  const auto layer = architecture->embedding_layer();
  return layer == 0 ? 0 : layer_plan().of_layer(layer).stage;
}

parallel::PipelineShape Recipe::pipeline_shape(std::int64_t ranks) const {
  const auto plan = layer_plan();
  return {plan.stages(), plan.chunks(), schedule::BatchPlan(ramp, batch_sizes(ranks)).full().micro_batches,
          parallel.microbatch_group_size_per_vp_stage.value_or(0)};
}

bool Recipe::continues_itself() const {
  const auto& given = training.load_checkpoint;
  const std::filesystem::path own = training.output_dir;
  return !given || training::is_same_folder(*given, own) || training::is_same_folder(*given, own / "checkpoints");
}

std::optional<std::string> Recipe::reference_folder() const {
  if (preference.ref_model) return preference.ref_model;
  if (preference.refer_model_iter) return training.output_dir;
  return continues_itself() ? training.pretrained_checkpoint : training.load_checkpoint;
}

std::optional<optim::LoraPlus> Recipe::lora_plus() const {
  if (!adapters || !lora.loraplus_lr_ratio) return {};
  const auto rate = learning_rate.learning_rate;
  return optim::LoraPlus{.ratio = *lora.loraplus_lr_ratio,
                         .embedding = rate > 0 ? lora.loraplus_lr_embedding / rate : 1};
}

schedule::BatchSizes Recipe::batch_sizes(std::int64_t ranks) const {
  return {batch.batch_size, batch.global_batch_size.value_or(batch.samples_per_step(ranks)), ranks};
}

schedule::RunLength Recipe::length(std::int64_t ranks) const {
  const auto step = batch_sizes(ranks).global;
  return {batch.in_samples()
              ? *batch.train_samples
              : checked_product({{"training_iters", training.training_iters}, {"samples of a step", step}}),
          step};
}

std::int64_t Recipe::iterations(std::int64_t ranks) const {
  if (!batch.in_samples()) return training.training_iters;
  return schedule::BatchPlan(ramp, batch_sizes(ranks)).steps_of(*batch.train_samples);
}

std::string resolved_yaml(const Recipe& recipe) {
  return "# Every option of a run, with its value and where that came from. Training with this file repeats the "
         "run.\n" +
         options::write_yaml(recipe.resolved);
}

options::Facts all_facts(const Registries& registries) {
  options::Report ignored;
  return read_recipe(options::Value{}, registries, ignored).facts;
}

}  // namespace tessera::recipe
