#include "framework/recipe/build.h"

#include <algorithm>

#include "framework/base/files.h"
#include "framework/base/random.h"
#include "framework/model/gpt_options.h"
#include "framework/recipe/hugging_face_model.h"
#include "framework/training/resume.h"

namespace tessera {
namespace {

/// Blobs are named after the option that the file stands under.
std::string tokenizer_blob(const Tokenizer::SourceFile& file) {
  return "tokenizer." + file.option + std::filesystem::path(file.path).extension().string();
}

Blobs files_to_keep(const Recipe& recipe, const Tokenizer* tokenizer) {
  Blobs files = {{recipe_blob, resolved_yaml(recipe)}};
  const auto& given = recipe.training.load_checkpoint;
  if (given && is_hugging_face_folder(*given)) files.merge(carried_files(*given));
  if (!tokenizer) return files;
  for (const auto& file : tokenizer->files()) files[tokenizer_blob(file)] = read_file(file.path);
  return files;
}

std::unique_ptr<Sampler> order_of(const Recipe& recipe, const Dataset* data, int replicas) {
  if (!data) return nullptr;
  return recipe.sampler.make({data->samples(), recipe.batch.batch_size, replicas});
}

/// The largest token id of the tokenizer must have a row.
void check_vocabulary(std::int64_t rows, const Tokenizer* tokenizer) {
  if (tokenizer && tokenizer->vocab_size() > rows)
    throw ConfigError(text("model_config.vocab_size is ", rows, ", but the tokenizer has ", tokenizer->vocab_size(),
                           " tokens; leave vocab_size out, or give at least that many"));
}

}  // namespace

std::int64_t vocabulary(const Recipe& recipe, const Tokenizer* tokenizer) {
  const auto rows = recipe.size.padded_vocabulary(tokenizer ? tokenizer->vocab_size() : 0,
                                                  recipe.parallel.tensor_model_parallel_size);
  check_vocabulary(rows, tokenizer);
  return rows;
}

DataParts data_parts(const Recipe& recipe, const Tokenizer* tokenizer, std::int64_t iterations, int replicas) {
  const auto& run = recipe.training;
  DataParts parts;
  parts.seq_length = recipe.size.seq_length;
  parts.asked = samples_asked(iterations, recipe.batch_sizes(replicas).global, run.eval_interval, run.eval_iters);
  if (recipe.batch.in_samples()) parts.asked.train = *recipe.batch.train_samples;
  if (run.epochs) parts.asked.train = one_epoch;
  parts.seed = run.seed;
  parts.vocab_size = vocabulary(recipe, tokenizer);
  if (tokenizer) parts.eod = tokenizer->eod();
  return parts;
}

std::unique_ptr<Model> build_model(const Recipe& recipe, const Tokenizer* tokenizer) {
  return recipe.model.make(
      {recipe.size.seq_length, vocabulary(recipe, tokenizer), precision(recipe.half, recipe.precision)});
}

namespace {

/// Steps of the run when it is counted in passes over `train`.
std::int64_t iterations_of(const Recipe& recipe, const Dataset& train, int replicas) {
  const auto step = recipe.batch_sizes(replicas).global;
  const auto pass = train.samples() / step;
  if (pass == 0)
    throw ConfigError(text("training_config.epochs: the training split has ", train.samples(),
                           " samples, fewer than the ", step, " of one step; make global_batch_size smaller"));
  const auto all = *recipe.training.epochs * pass;
  return recipe.training.training_iters > 0 ? std::min(all, recipe.training.training_iters) : all;
}

std::unique_ptr<DataSplits> make_data(const Recipe& recipe, const Tokenizer* tokenizer, std::int64_t iterations,
                                      int replicas) {
  auto data = recipe.dataset.make(data_parts(recipe, tokenizer, iterations, replicas));
  if (!data->train)
    throw ConfigError(
        "dataset_config: there is nothing to train on; give a data_path, train_data_path, or a split whose first share "
        "is not 0");
  return data;
}

/// What the run reads, in which order, and with that how long it is.
void add_data(const Recipe& recipe, const Tokenizer* tokenizer, Parts& parts) {
  const auto replicas = parts.processes.data.size();
  auto& iterations = parts.options.training_iters;
  iterations = recipe.iterations(replicas);
  if (recipe.training.epochs)
    iterations = iterations_of(recipe, *make_data(recipe, tokenizer, 1, replicas)->train, replicas);
  parts.data = make_data(recipe, tokenizer, iterations, replicas);
  parts.train_order = order_of(recipe, parts.data->train.get(), replicas);
  parts.valid_order = order_of(recipe, parts.data->valid.get(), replicas);
  parts.test_order = order_of(recipe, parts.data->test.get(), replicas);
  if (!recipe.training.epochs) return;
  const auto step = recipe.batch_sizes(replicas).global;
  parts.epoch_samples = parts.data->train->samples() / step * step;
  if (recipe.sampler.type == "single") parts.train_order = repeated(std::move(parts.train_order), parts.epoch_samples);
}

const GptOptions* gpt_options(const Recipe& recipe) { return recipe.model.options<GptOptions>(); }

ModelChunk chunk_of(const LayerPlan& plan, const Chunk& chunk) {
  ModelChunk out;
  out.noop = plan.noop_layers();
  if (plan.stages() == 1 && plan.chunks() == 1 && !chunk.recompute) return out;
  out.embedding = chunk.embedding;
  out.loss = chunk.loss;
  out.first_layer = chunk.first_layer;
  out.layers = chunk.layers;
  if (chunk.recompute) out.recompute = {chunk.recompute->layers, chunk.recompute->attention};
  return out;
}

/// This process's part of the model, and with others beside it, who may have parts of the rest or of the masters,
/// the names and shapes of all of it.
void add_model(const Recipe& recipe, const Tokenizer* tokenizer, Parts& parts) {
  parts.precision = precision(recipe.half, recipe.precision);
  parts.plan = recipe.layer_plan();
  parts.micro_batch_group = recipe.parallel.microbatch_group_size_per_vp_stage.value_or(0);
  const auto& processes = parts.processes;
  ModelParts model{recipe.size.seq_length,
                   vocabulary(recipe, tokenizer),
                   parts.precision,
                   {processes.tensor, recipe.parallel.sequence_parallel},
                   {}};
  for (const auto& chunk : parts.plan.stage(processes.place.pipeline)) {
    model.chunk = chunk_of(parts.plan, chunk);
    parts.chunks.push_back(recipe.model.make(model));
  }
  parts.tokens = tokenizer ? tokenizer->vocab_size() : 0;
  if (processes.world.size() == 1) return;
  const auto whole = build_model(recipe, tokenizer);
  for (const auto* parameter : whole->parameters())
    parts.all_weights.push_back({parameter->name, parameter->global_shape, {}, {}});
}

}  // namespace

std::unique_ptr<OptimizerSchedule> build_schedule(const Recipe& recipe, const RunLength& length) {
  return std::make_unique<OptimizerSchedule>(LearningRate(recipe.learning_rate, recipe.decay.make(length), length),
                                             WeightDecay(recipe.weight_decay, length), recipe.decay.type,
                                             decay_maker(decays(), length));
}

ProcessGroups arrange(const Recipe& recipe, const World& world) {
  world.set_time_out(std::chrono::minutes(recipe.training.distributed_timeout_minutes));
  const auto ranks = world.size();
  check_promised_size(ranks);
  const auto all = world.all().all_gather(std::to_string(name_id(resolved_yaml(recipe))), "the recipes");
  for (std::size_t rank = 1; rank < all.size(); ++rank)
    if (all[rank] != all[0])
      throw ConfigError(text("rank ", rank, " has read another recipe than rank 0; give all hosts the same files"));
  check_ranks(recipe, ranks);
  MeshSizes sizes;
  sizes.tensor = static_cast<int>(recipe.parallel.tensor_model_parallel_size);
  sizes.pipeline = static_cast<int>(recipe.parallel.pipeline_model_parallel_size);
  sizes.data = static_cast<int>(data_parallel_ranks(recipe.parallel, ranks));
  sizes.pipeline_before_data = recipe.parallel.use_tp_pp_dp_mapping;
  const auto* gpt = gpt_options(recipe);
  if (!gpt && sizes.tensor * sizes.pipeline > 1)
    throw ConfigError(text("parallel_config: model_type ", recipe.model.type,
                           " is not cut over processes; give tensor_model_parallel_size and "
                           "pipeline_model_parallel_size 1, which leaves data parallelism"));
  return {world, Mesh(sizes), gpt ? gpt->groups() : 1};
}

Parts build(const Recipe& recipe, const ProcessGroups& processes) {
  check_ranks(recipe, processes.world.size());
  const auto tokenizer = recipe.tokenizer.make();
  Parts parts;
  parts.processes = processes;
  const auto replicas = processes.data.size();
  parts.options = recipe.training;
  parts.batch = recipe.batch;
  parts.batch_plan = BatchPlan(recipe.ramp, recipe.batch_sizes(replicas));
  parts.clipping = recipe.clipping;
  parts.groups = recipe.groups;
  parts.schedule_resume = recipe.schedule_resume;
  parts.loss_scaler = LossScaler(recipe.loss_scale, recipe.half.fp16);
  parts.data_parallel = recipe.data_parallel;
  parts.parameter_gather = recipe.parameter_gather;
  parts.data_parallel.use_distributed_optimizer = recipe.shares_optimizer();
  if (recipe.parallel.overlap_grad_reduce)
    parts.data_parallel.overlap_grad_reduce = *recipe.parallel.overlap_grad_reduce;
  parts.optimizer = recipe.optimizer.make();
  add_model(recipe, tokenizer.get(), parts);
  add_data(recipe, tokenizer.get(), parts);
  auto length = recipe.length(replicas);
  if (length.samples == 0) length.samples = parts.options.training_iters * length.samples_per_step;
  parts.schedule = build_schedule(recipe, length);
  parts.resolved_recipe = resolved_yaml(recipe);
  parts.files = files_to_keep(recipe, tokenizer.get());
  return parts;
}

namespace {

/// The checkpoint itself, or the newest that opens below a run folder. Looks only.
Checkpoint open_newest(const std::filesystem::path& folder) {
  if (std::filesystem::exists(folder / "manifest.json")) return Checkpoint::open(folder);
  std::string damage;
  for (const auto& root : {folder / "checkpoints", folder})
    for (const auto& path : list_folder(root)) {
      if (!std::filesystem::exists(path / "manifest.json")) continue;
      const auto name = path.filename().string();
      const auto at = name.rfind("iter_");
      if (at == std::string::npos) continue;
      for (const auto& info : list_checkpoints(root, name.substr(0, at))) {
        try {
          return Checkpoint::open(info.folder);
        } catch (const DamageError& error) {
          damage += text("\n  ", error.what());
        }
      }
      break;
    }
  if (!damage.empty()) throw DamageError(text(folder.string(), ": no checkpoint in it is usable:", damage));
  throw ConfigError(text(
      folder.string(), ": neither a checkpoint nor a run folder with checkpoints; give one that `tessera train` made"));
}

}  // namespace

SavedModel open_saved(const std::filesystem::path& folder, const Shelves& shelves,
                      const std::vector<std::string>& given_sets) {
  SavedModel out{open_newest(folder), {}, nullptr};
  const auto& checkpoint = out.checkpoint;
  if (!checkpoint.blobs().count(recipe_blob))
    throw ConfigError(text(checkpoint.folder().string(), ": holds no ", recipe_blob,
                           ", so its model is not known; was it saved by another program?"));
  const auto files = checkpoint.folder() / "blobs";
  std::vector<std::string> sets;
  for (const auto& [name, content] : checkpoint.blobs())
    if (name.rfind("tokenizer.", 0) == 0) {
      const auto option = name.substr(10, name.find('.', 10) - 10);
      sets.push_back(text("dataset_config.", option, "=", (files / name).string()));
    }
  sets.insert(sets.end(), given_sets.begin(), given_sets.end());
  out.recipe = read_recipe((files / recipe_blob).string(), sets, shelves);
  out.tokenizer = out.recipe.tokenizer.make();
  return out;
}

TrainedModel load_trained(const std::filesystem::path& folder, const Shelves& shelves) {
  if (is_hugging_face_folder(folder)) return load_hugging_face(folder, shelves, Mappings());
  auto saved = open_saved(folder, shelves);
  TrainedModel out;
  out.folder = saved.checkpoint.folder();
  out.recipe = std::move(saved.recipe);
  out.tokenizer = std::move(saved.tokenizer);
  out.model = build_model(out.recipe, out.tokenizer.get());
  out.weights = std::make_unique<ModelState>(*out.model, nullptr);
  load_weights(saved.checkpoint, *out.weights, true);
  return out;
}

}  // namespace tessera
