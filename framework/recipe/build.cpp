#include "framework/recipe/build.h"

#include <algorithm>

#include "framework/base/files.h"
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

std::unique_ptr<Sampler> order_of(const Recipe& recipe, const Dataset* data) {
  if (!data) return nullptr;
  return recipe.sampler.make({data->samples(), recipe.batch.batch_size, 1});
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

DataParts data_parts(const Recipe& recipe, const Tokenizer* tokenizer, std::int64_t iterations) {
  const auto& run = recipe.training;
  DataParts parts;
  parts.seq_length = recipe.size.seq_length;
  parts.asked = samples_asked(iterations, recipe.batch_sizes().global, run.eval_interval, run.eval_iters);
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
std::int64_t iterations_of(const Recipe& recipe, const Dataset& train) {
  const auto step = recipe.batch_sizes().global;
  const auto pass = train.samples() / step;
  if (pass == 0)
    throw ConfigError(text("training_config.epochs: the training split has ", train.samples(),
                           " samples, fewer than the ", step, " of one step; make global_batch_size smaller"));
  const auto all = *recipe.training.epochs * pass;
  return recipe.training.training_iters > 0 ? std::min(all, recipe.training.training_iters) : all;
}

std::unique_ptr<DataSplits> make_data(const Recipe& recipe, const Tokenizer* tokenizer, std::int64_t iterations) {
  auto data = recipe.dataset.make(data_parts(recipe, tokenizer, iterations));
  if (!data->train)
    throw ConfigError(
        "dataset_config: there is nothing to train on; give a data_path, train_data_path, or a split whose first share "
        "is not 0");
  return data;
}

/// What the run reads, in which order, and with that how long it is.
void add_data(const Recipe& recipe, const Tokenizer* tokenizer, Parts& parts) {
  auto& iterations = parts.options.training_iters;
  iterations = recipe.iterations();
  if (recipe.training.epochs) iterations = iterations_of(recipe, *make_data(recipe, tokenizer, 1)->train);
  parts.data = make_data(recipe, tokenizer, iterations);
  parts.train_order = order_of(recipe, parts.data->train.get());
  parts.valid_order = order_of(recipe, parts.data->valid.get());
  parts.test_order = order_of(recipe, parts.data->test.get());
  if (!recipe.training.epochs) return;
  const auto step = recipe.batch_sizes().global;
  parts.epoch_samples = parts.data->train->samples() / step * step;
  if (recipe.sampler.type == "single") parts.train_order = repeated(std::move(parts.train_order), parts.epoch_samples);
}

}  // namespace

std::unique_ptr<OptimizerSchedule> build_schedule(const Recipe& recipe, const RunLength& length) {
  return std::make_unique<OptimizerSchedule>(LearningRate(recipe.learning_rate, recipe.decay.make(length), length),
                                             WeightDecay(recipe.weight_decay, length), recipe.decay.type,
                                             decay_maker(decays(), length));
}

Parts build(const Recipe& recipe) {
  check_ranks(recipe, 1);
  const auto tokenizer = recipe.tokenizer.make();
  Parts parts;
  parts.options = recipe.training;
  parts.batch = recipe.batch;
  parts.batch_plan = BatchPlan(recipe.ramp, recipe.batch_sizes());
  parts.clipping = recipe.clipping;
  parts.groups = recipe.groups;
  parts.schedule_resume = recipe.schedule_resume;
  parts.loss_scaler = LossScaler(recipe.loss_scale, recipe.half.fp16);
  parts.model = build_model(recipe, tokenizer.get());
  parts.precision = precision(recipe.half, recipe.precision);
  parts.optimizer = recipe.optimizer.make();
  add_data(recipe, tokenizer.get(), parts);
  auto length = recipe.length();
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
