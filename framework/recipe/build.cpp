#include "framework/recipe/build.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <utility>

#include "framework/base/checked.h"
#include "framework/base/random.h"
#include "framework/checkpoint/find.h"
#include "framework/checkpoint/frozen_base.h"
#include "framework/log/log.h"
#include "framework/model/feature_cache.h"
#include "framework/options/limits.h"
#include "framework/options/same.h"
#include "framework/options/yaml.h"
#include "framework/parallel/context_options.h"
#include "framework/recipe/adapted_model.h"
#include "framework/recipe/noted_adapters.h"
#include "framework/recipe/peft_adapter.h"
#include "framework/recipe/recipe_changes.h"
#include "framework/recipe/saved_model.h"
#include "framework/training/saving/run_checkpoints.h"
#include "framework/training/setup/given_checkpoint.h"
#include "framework/training/state/model_state.h"

namespace tessera::recipe {
namespace {

checkpoint::Blobs files_to_keep(const Recipe& recipe, const std::string& resolved,
                                const tokenizers::Tokenizer* tokenizer) {
  checkpoint::Blobs files = {{checkpoint::recipe_blob, resolved}};
  const auto& given = recipe.training.load_checkpoint;
  if (const auto* format = given ? recipe.formats.of(*given) : nullptr) files.merge(format->carried_files(*given));
  if (tokenizer) files.merge(tokenizer_blobs(*tokenizer));
  return files;
}

/// Whether a text of resolved.yaml has the same options and values as `own`.
bool is_recipe(const std::string& resolved, const options::Value& own) {
  try {
    return options::same(options::parse_yaml(resolved, checkpoint::recipe_blob), own);
  } catch (const Error&) {
    return false;
  }
}

/// The largest token id of the tokenizer must have a row.
void check_vocabulary(std::int64_t rows, const tokenizers::Tokenizer* tokenizer) {
  if (tokenizer && tokenizer->vocab_size() > rows)
    throw ConfigError(text("model_config.vocab_size is ", rows, ", but the tokenizer has ", tokenizer->vocab_size(),
                           " tokens; leave vocab_size out, or give at least that many"));
}

/// So must the token whose row gets no gradient from the input.
void check_padding_token(const Recipe& recipe, std::int64_t rows) {
  const auto* given = recipe.resolved.at("model_config.embedding_padding_token");
  std::int64_t token = 0;
  if (given == nullptr || !options::OptionType<std::int64_t>::read(*given, token) || token < rows) return;
  throw ConfigError(text("model_config.embedding_padding_token is ", token, ", but the vocabulary has ", rows,
                         " rows; give a smaller number, or null"));
}

}  // namespace

std::int64_t epoch_iterations(const Recipe& recipe, std::int64_t samples, std::int64_t replicas) {
  const auto step = recipe.batch_sizes(replicas).global;
  const auto pass = samples / step;
  if (pass == 0)
    throw ConfigError(text("training_config.epochs: the training split has ", samples, " samples, fewer than the ",
                           step, " of one step; make global_batch_size smaller"));
  const auto all = checked_product({{"epochs", *recipe.training.epochs}, {"steps of one", pass}});
  return recipe.training.training_iters > 0 ? std::min(all, recipe.training.training_iters) : all;
}

std::int64_t vocabulary(const Recipe& recipe, const tokenizers::Tokenizer* tokenizer) {
  const auto rows = recipe.size.padded_vocabulary(tokenizer ? tokenizer->vocab_size() : 0,
                                                  recipe.parallel.tensor_model_parallel_size);
  check_vocabulary(rows, tokenizer);
  check_padding_token(recipe, rows);
  if (rows > options::most_tokens_known)
    throw ConfigError(text("model_config.make_vocab_size_divisible_by: the vocabulary rounded up has ", rows,
                           " rows; at most ", options::most_tokens_known, " are allowed, give a smaller number"));
  return rows;
}

data::DataParts data_parts(const Recipe& recipe, const tokenizers::Tokenizer* tokenizer, std::int64_t iterations,
                           int replicas) {
  const auto& run = recipe.training;
  data::DataParts parts;
  parts.seq_length = recipe.size.seq_length;
  parts.asked =
      data::samples_asked(iterations, recipe.batch_sizes(replicas).global, run.eval_interval, run.evaluation_steps());
  if (recipe.batch.in_samples()) parts.asked.train = *recipe.batch.train_samples;
  if (run.epochs) parts.asked.train = data::one_epoch;
  if (run.full_validation && run.eval_interval > 0) parts.asked.valid = data::one_epoch;
  parts.seed = run.seed;
  parts.vocab_size = vocabulary(recipe, tokenizer);
  if (tokenizer) parts.eod = tokenizer->eod();
  if (tokenizer) parts.pad = tokenizer->special_ids().pad;
  parts.global_batch_size = recipe.batch_sizes(replicas).global;
  parts.tokenizer = tokenizer;
  return parts;
}

std::int64_t weight_bytes(model::Model& model, const checkpoint::WeightSource* mapped_from) {
  std::int64_t elements = 0, mapped = 0;
  const auto parameters = model.parameters();
  if (mapped_from) mapped = training::FrozenWeights::mappable(parameters, *mapped_from, {}).reserved;
  for (const auto* parameter : training::select(parameters, true))
    elements = checked_sum({{"parameters", elements}, {parameter->name.c_str(), parameter->elements()}});
  return checked_sum({{"weights", checked_product({{"parameters", elements}, {"bytes of each", sizeof(float)}})},
                      {"frozen weights", training::FrozenWeights::bytes_of(parameters) - mapped}});
}

model::ModelParts whole_model(const Recipe& recipe, std::int64_t rows) {
  auto whole = parallel::LayerPlan(recipe.architecture->towers().value_or(parallel::Towers())).at(0, 0);
  whole.noop = recipe.parallel.noop_layers.ids;
  return {.vocabulary = rows,
          .precision = model::precision(recipe.half, recipe.precision),
          .tensor = {},
          .context = {},
          .expert = {},
          .chunk = std::move(whole),
          .adapters = recipe.adapters};
}

std::unique_ptr<model::Model> build_model(const Recipe& recipe, const tokenizers::Tokenizer* tokenizer) {
  auto model = recipe.architecture->build(whole_model(recipe, vocabulary(recipe, tokenizer)));
  training::freeze(model->parameters(), trained_names(recipe), recipe.experts());
  return model;
}

namespace {

using RowsByName = std::map<std::string, std::vector<nn::ElementRange>>;

/// The biases of layers with adapters, and their rows that belong to parts without.
RowsByName biases_of_adapted(const Recipe& recipe) {
  const auto noted = std::make_shared<const NotedAdapters>(*recipe.adapters);
  auto parts = whole_model(recipe, 1);  // the vocabulary's size changes no names
  parts.adapters = noted;
  recipe.architecture->build(parts);
  RowsByName biases;
  for (const auto& [module, layer] : noted->layers()) {
    auto& rows = biases[module + ".bias"];
    const auto has_adapter = [&forms = layer.forms](const std::string& part) {
      return std::any_of(forms.begin(), forms.end(),
                         [&](const auto& form) { return form.part.name.empty() || form.part.name == part; });
    };
    for (const auto& part : layer.parts)
      if (!has_adapter(part.name)) rows.insert(rows.end(), part.rows.begin(), part.rows.end());
  }
  return biases;
}

}  // namespace

// Adapters and what lora_config trains beside them; the layers that freeze_trainable_layers names.
training::TrainedNames trained_names(const Recipe& recipe) {
  using model::LoraBias;
  const auto& run = recipe.training;
  if (!recipe.adapters && !recipe.trained_layers && !run.freeze_all_layers)
    return {run.frozen_parameters, run.trainable_parameters};
  const auto of_adapted = std::make_shared<const RowsByName>(
      recipe.adapters && recipe.lora.bias == LoraBias::lora_only ? biases_of_adapted(recipe) : RowsByName());
  const auto tuned = [plan = recipe.adapters, layers = recipe.trained_layers, biases = recipe.lora.bias,
                      of_adapted](const std::string& name) {
    // A score head is new, so it is trained beside the adapters or layers, as PEFT does for classifiers.
    return nn::is_of_adapter(name) || name == "score.weight" || (layers && layers->trains(name)) ||
           (plan && (plan->saves(name) || (biases == LoraBias::all && name.ends_with(".bias")))) ||
           of_adapted->contains(name);
  };
  const auto frozen_rows = [of_adapted](const std::string& name) {
    const auto found = of_adapted->find(name);
    return found == of_adapted->end() ? std::vector<nn::ElementRange>() : found->second;
  };
  // A new adapter is not in the base that load_checkpoint names.
  const auto kept = [beside = run.load_checkpoint.has_value()](const std::string& name) {
    return beside && nn::is_of_adapter(name);
  };
  return {run.frozen_parameters, run.trainable_parameters, tuned, frozen_rows, kept};
}

namespace {

const log::Logger features_logger("model");

std::shared_ptr<model::FeatureCache> feature_cache(const Recipe& recipe) {
  const auto& folder = recipe.vision.feature_cache_path;
  if (!folder) return nullptr;
  return std::make_shared<model::FeatureCache>(*folder, [](const std::string& line) { features_logger.warning(line); });
}

Chunks chunks_of(const Recipe& recipe, const parallel::LayerPlan& plan, std::int64_t stage, model::ModelParts parts,
                 const training::TrainedNames& names) {
  Chunks chunks;
  parts.features = feature_cache(recipe);
  for (std::int64_t chunk = 0; chunk < plan.chunks(); ++chunk) {
    parts.chunk = plan.at(stage, chunk);
    chunks.push_back(recipe.architecture->build(parts));
    training::freeze(chunks.back()->parameters(), names, recipe.experts());
  }
  return chunks;
}

}  // namespace

Chunks build_stage(const Recipe& recipe, std::int64_t rows, const parallel::LayerPlan& plan, std::int64_t stage,
                   const nn::TensorRank& tensor, const parallel::ContextLayout& context, const nn::ExpertRank& expert) {
  return chunks_of(recipe, plan, stage,
                   {.vocabulary = rows,
                    .precision = model::precision(recipe.half, recipe.precision),
                    .tensor = tensor,
                    .context = context,
                    .expert = expert,
                    .adapters = recipe.adapters},
                   trained_names(recipe));
}

Chunks build_reference_stage(const Recipe& recipe, std::int64_t rows, const parallel::LayerPlan& plan,
                             std::int64_t stage, const nn::TensorRank& tensor, const parallel::ContextLayout& context,
                             const nn::ExpertRank& expert) {
  return chunks_of(recipe, plan, stage,
                   {.vocabulary = rows,
                    .precision = model::precision(recipe.half, recipe.precision),
                    .tensor = tensor,
                    .context = context,
                    .expert = expert},
                   training::TrainedNames({".*"}, {}));
}

std::int64_t frozen_chunks(const Recipe& recipe, const parallel::LayerPlan& plan) {
  if (!recipe.may_freeze()) return 0;
  std::map<std::pair<std::int64_t, std::int64_t>, bool> trains;  // by stage and chunk
  std::int64_t frozen = 0;
  for (std::int64_t stage = 0; stage < plan.stages(); ++stage) {
    const auto chunks = build_stage(recipe, 1, plan, stage, {});  // names do not depend on the size of the vocabulary
    for (std::size_t c = 0; c < chunks.size(); ++c)
      trains[{stage, static_cast<std::int64_t>(c)}] = !training::select(chunks[c]->parameters(), true).empty();
  }
  for (std::optional<parallel::LayerPlan::ChunkIndex> at = {{0, 0}}; at && !trains.at({at->stage, at->chunk});
       at = plan.after(*at))
    ++frozen;
  return frozen;
}

namespace {

/// `options`: of the run, whose load_checkpoint can be another than that of the recipe.
training::ReferencePlace reference_place(const Recipe& recipe, const training::TrainingOptions& options,
                                         bool weights_alone) {
  const auto& given = recipe.preference;
  if (given.ref_model || given.refer_model_iter)
    return {.folder = recipe.reference_folder().value(), .iteration = given.refer_model_iter};
  if (recipe.continues_itself()) return {.folder = recipe.reference_folder().value(), .began_with = true};
  return {.folder = options.load_checkpoint.value(),
          .ckpt_step = weights_alone ? std::nullopt : options.ckpt_step,
          .began_with = true};
}

/// This process's part of the model, and with others beside it, who may have parts of the rest or of the masters,
/// the names and shapes of all of it.
void add_model(const Recipe& recipe, const tokenizers::Tokenizer* tokenizer, const training::TrainingOptions& options,
               training::ModelSetup& setup) {
  setup.precision = model::precision(recipe.half, recipe.precision);
  setup.plan = recipe.layer_plan();
  setup.micro_batch_group = recipe.parallel.microbatch_group_size_per_vp_stage.value_or(0);
  const auto& processes = setup.processes;
  const auto own_stage = [&](auto build_chunks) {
    return build_chunks(recipe, vocabulary(recipe, tokenizer), setup.plan, processes.place.pipeline,
                        processes.tensor_rank(recipe.parallel.sequence_parallel),
                        parallel::context_layout(recipe.parallel, processes.context.rank()), processes.expert_rank());
  };
  setup.chunks = own_stage(build_stage);
  if (recipe.needs_reference()) {
    setup.reference = std::make_unique<training::ReferenceModel>(own_stage(build_reference_stage), processes,
                                                                 reference_place(recipe, options, setup.weights_alone));
    setup.caches_reference = recipe.preference.cache_reference;
  }
  setup.tokens = tokenizer ? tokenizer->vocab_size() : 0;
  setup.upcycles = recipe.moe.moe_use_upcycling;
  if (recipe.adapters && recipe.lora.adapter)
    setup.open_adapter = [recipe](const checkpoint::OpenedCheckpoint& base) {
      if (!peft_reader(*recipe.registries).is_adapter(*recipe.lora.adapter))
        throw ConfigError(text("lora_config.adapter: ", *recipe.lora.adapter,
                               " has no adapter_config.json; give the folder of an adapter of PEFT"));
      auto weights = open_peft_adapter(recipe, *recipe.lora.adapter, base).weights;
      refuse_merged(*weights, base);
      return weights;
    };
  setup.trained = trained_names(recipe);
  setup.frozen_chunks = frozen_chunks(recipe, setup.plan);
  const auto count = [&setup](model::Model& part) {
    for (const auto* parameter : part.parameters()) {
      setup.parameters += parameter->elements();
      setup.trained_parameters += training::trained_elements(*parameter);
    }
  };
  if (processes.world.size() == 1) {
    for (const auto& chunk : setup.chunks) count(*chunk);
    return;
  }
  const auto whole = build_model(recipe, tokenizer);
  count(*whole);
  for (const auto* parameter : whole->parameters())
    setup.all_weights.push_back({.name = parameter->name,
                                 .global_shape = parameter->global_shape,
                                 .offsets = {},
                                 .tensor = {},
                                 .role = parameter->role});
}

}  // namespace

namespace {

/// The options that the lengths of the schedules come from. A run in samples has all its lengths in samples
/// (rules.cpp).
schedule::ScheduleKeys schedule_keys(const Recipe& recipe, const schedule::RunLength& length) {
  const std::string o = "optimizer_config.";
  const auto& rate = recipe.learning_rate;
  const bool in_samples = recipe.batch.in_samples();
  schedule::ScheduleKeys keys;
  keys.length = in_samples               ? "dataset_config.train_samples"
                : recipe.training.epochs ? "training_config.epochs"
                                         : "training_config.training_iters";
  keys.decay = rate.lr_decay_iters     ? o + "lr_decay_iters"
               : rate.lr_decay_samples ? o + "lr_decay_samples"
                                       : keys.length;
  keys.warmup = o + (rate.lr_warmup_fraction ? "lr_warmup_fraction"
                     : in_samples            ? "lr_warmup_samples"
                                             : "lr_warmup_iters");
  keys.warmup_is_fraction = rate.lr_warmup_fraction.has_value();
  keys.unit = in_samples ? "sample" : "step";
  keys.samples_per_unit = in_samples ? 1 : static_cast<double>(length.samples_per_step);
  return keys;
}

}  // namespace

namespace {

const log::Logger base_logger("base");

/// As Megatron-LM does, a run begins with the weights of pretrained_checkpoint while load_checkpoint holds nothing.
void begin_with_pretrained(training::TrainingSetup& setup, const checkpoint::CheckpointFormats& formats) {
  auto& o = setup.options;
  if (!o.pretrained_checkpoint || (o.load_checkpoint && checkpoint::has_checkpoint(*o.load_checkpoint, formats)))
    return;
  if (!checkpoint::has_checkpoint(*o.pretrained_checkpoint, formats))
    throw ConfigError(text("training_config.pretrained_checkpoint: ", *o.pretrained_checkpoint,
                           " holds no checkpoint; give the folder of one, or leave it out"));
  o.load_checkpoint = o.pretrained_checkpoint;
  setup.model.weights_alone = true;
}

checkpoint::Quantisation quantisation(const Recipe& recipe) {
  return {.nested = recipe.lora.qlora_double_quant,
          .cache = std::filesystem::path(recipe.training.output_dir) / "quantised"};
}

/// Where the base of a run with qlora is, in 4 bits. A checkpoint of ours that names such a base is returned itself.
std::string quantised_base(const Recipe& recipe, const training::TrainingSetup& setup) {
  const std::filesystem::path given = *recipe.training.load_checkpoint;
  const auto* format = recipe.formats.of(given);
  if (format == nullptr) {
    std::vector<std::string> told_by_training;
    const auto own = training::open_any(setup, given, told_by_training);
    if (own && checkpoint::base_in(own->blobs())) return given.string();
    throw ConfigError(text("lora_config.qlora: ", given.string(),
                           " is no folder of Hugging Face Transformers, whose weights can be quantised; export it with "
                           "`tessera checkpoint convert --to hf`"));
  }
  std::vector<std::string> notes;
  auto how = quantisation(recipe);
  how.tell = [](const std::string& line) { base_logger.info(line); };
  const auto base = format->quantised(*format->find(given), how, recipe.mappings, notes);
  for (const auto& note : notes) base_logger.info(note);
  return base.string();
}

/// The folder in 4 bits that qlora has made of `folder`, or else `folder`.
std::filesystem::path quantised_before(const Recipe& recipe, const std::filesystem::path& folder) {
  const auto* format = recipe.lora.qlora ? recipe.formats.of(folder) : nullptr;
  if (format == nullptr) return folder;
  std::vector<std::string> notes;
  auto how = quantisation(recipe);
  how.writes = false;
  return format->quantised(*format->find(folder), how, recipe.mappings, notes);
}

}  // namespace

std::unique_ptr<checkpoint::OpenedCheckpoint> mapped_source(const Recipe& recipe, const std::string& folder) {
  try {
    auto opened = open_with_frozen(quantised_before(recipe, folder), *recipe.registries);
    if (recipe.formats.of(opened->folder()) != nullptr) return opened;
    return std::make_unique<checkpoint::NativeCheckpoint>(checkpoint::Checkpoint::open(opened->folder()), false);
  } catch (const Error&) {
    return nullptr;
  }
}

training::FrozenWeights::Ways ways_of_base(const Recipe& recipe, const checkpoint::OpenedCheckpoint& source) {
  const bool rows = !recipe.saves_frozen();
  const auto* format = recipe.formats.of(source.folder());
  training::FrozenWeights::Ways ways{.rows = rows, .laid_out = rows && format != nullptr};
  if (recipe.lora.qlora && format != nullptr)
    ways.quantised = [&source, format, how = quantisation(recipe)](const nn::Parameter& parameter) {
      return source.storage_type(parameter.name).empty()
                 ? format->quantised_bytes(parameter.name, parameter.elements(), how)
                 : std::nullopt;
    };
  return ways;
}

std::unique_ptr<schedule::OptimizerSchedule> build_schedule(const Recipe& recipe, const schedule::RunLength& length) {
  return std::make_unique<schedule::OptimizerSchedule>(
      schedule::LearningRate(recipe.learning_rate, recipe.decay.make(length), length),
      schedule::WeightDecay(recipe.weight_decay, length), recipe.decay.type,
      schedule::decay_maker(schedule::decays(), length), schedule_keys(recipe, length));
}

parallel::ProcessGroups arrange(const Recipe& recipe, const comm::World& world) {
  world.set_time_out(std::chrono::minutes(recipe.training.distributed_timeout_minutes));
  const auto ranks = world.size();
  comm::check_promised_size(ranks);
  const auto all = world.all().all_gather(std::to_string(name_id(text(recipe.resolved))), "the recipes");
  for (std::size_t rank = 1; rank < all.size(); ++rank)
    if (all[rank] != all[0])
      throw ConfigError(text("the recipe of rank ", rank,
                             " differs from that of rank 0; give all hosts the same recipe files and --set"));
  check_ranks(recipe, ranks);
  const auto mesh = mesh_of(recipe, ranks);
  if (!recipe.architecture->towers() && mesh.sizes().tensor * mesh.sizes().context * mesh.sizes().pipeline > 1)
    throw ConfigError(
        text("parallel_config: model_type ", recipe.model.type,
             " supports data parallelism only; give tensor_model_parallel_size, context_parallel_size and "
             "pipeline_model_parallel_size 1"));
  return {world, mesh, recipe.query_groups(), recipe.embedding_stage()};
}

training::TrainingSetup build(const Recipe& recipe) {
  check_ranks(recipe, 1);
  return build(recipe, {}, open_data(recipe, 1));
}

training::TrainingSetup build(const Recipe& recipe, const parallel::ProcessGroups& processes, training::RunData data) {
  check_ranks(recipe, processes.world.size());
  const auto* tokenizer = data.tokenizer.get();
  training::TrainingSetup setup;
  setup.options = recipe.training;
  setup.resilience = recipe.resilience;
  setup.profile = recipe.profile;
  setup.options.training_iters = data.iterations;
  setup.options.save_frozen_parameters = recipe.saves_frozen();
  setup.documents.formats = recipe.formats;
  setup.documents.mappings = recipe.mappings;
  if (recipe.lora.qlora) setup.options.load_checkpoint = quantised_base(recipe, setup);
  begin_with_pretrained(setup, recipe.formats);
  setup.model.processes = processes;
  auto& optimization = setup.optimization;
  optimization.groups = recipe.groups;
  optimization.lora_plus = recipe.lora_plus();
  optimization.expert_bias_rate = recipe.moe.moe_router_bias_update_rate;
  optimization.clipping = recipe.clipping;
  optimization.schedule_resume = recipe.schedule_resume;
  optimization.loss_scaler = training::LossScaler(recipe.loss_scale, recipe.half.fp16);
  optimization.objective = recipe.objective.make();
  optimization.data_parallel = recipe.data_parallel;
  optimization.parameter_gather = recipe.parameter_gather;
  optimization.optimizer = recipe.optimizer.make();
  add_model(recipe, tokenizer, setup.options, setup.model);
  auto length = recipe.length(processes.replicas());
  if (length.samples == 0)
    length.samples =
        checked_product({{"steps", setup.options.training_iters}, {"samples of a step", length.samples_per_step}});
  optimization.schedule = build_schedule(recipe, length);
  setup.documents.resolved_recipe = resolved_yaml(recipe);
  setup.documents.files = files_to_keep(recipe, setup.documents.resolved_recipe, tokenizer);
  setup.documents.recipe = options::parse_yaml(setup.documents.resolved_recipe, checkpoint::recipe_blob);
  training::saving_format(setup.options,
                          setup.documents.formats);  // throws before the run instead of at its first save
  setup.documents.changes_since = [recipe, files = setup.documents.files](const checkpoint::Blobs& saved,
                                                                          const options::Value* described) {
    return recipe_changes(recipe, files, saved, described);
  };
  setup.documents.same_recipe = [own = setup.documents.recipe](const std::string& resolved) {
    return is_recipe(resolved, own);
  };
  setup.data = std::move(data);
  return setup;
}

}  // namespace tessera::recipe
