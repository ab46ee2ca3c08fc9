#include "framework/recipe/build.h"

#include "framework/base/files.h"
#include "framework/training/resume.h"

namespace tessera {
namespace {

/// Blobs are named after the option that the file stands under.
std::string tokenizer_blob(const Tokenizer::SourceFile& file) {
  return "tokenizer." + file.option + std::filesystem::path(file.path).extension().string();
}

Blobs files_to_keep(const Recipe& recipe, const Tokenizer* tokenizer) {
  Blobs files = {{recipe_blob, resolved_yaml(recipe)}};
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
  const auto rows = recipe.size.padded_vocabulary(tokenizer ? tokenizer->vocab_size() : 0);
  check_vocabulary(rows, tokenizer);
  return rows;
}

DataParts data_parts(const Recipe& recipe, const Tokenizer* tokenizer) {
  const auto& run = recipe.training;
  DataParts parts;
  parts.seq_length = recipe.size.seq_length;
  parts.asked = samples_asked(run.training_iters, recipe.batch.samples_per_step(), run.eval_interval, run.eval_iters);
  parts.seed = run.seed;
  parts.vocab_size = vocabulary(recipe, tokenizer);
  if (tokenizer) parts.eod = tokenizer->eod();
  return parts;
}

std::unique_ptr<Model> build_model(const Recipe& recipe, const Tokenizer* tokenizer) {
  return recipe.model.make({recipe.size.seq_length, vocabulary(recipe, tokenizer)});
}

Parts build(const Recipe& recipe) {
  const auto tokenizer = recipe.tokenizer.make();
  Parts parts;
  parts.options = recipe.training;
  parts.batch = recipe.batch;
  parts.clipping = recipe.clipping;
  parts.model = build_model(recipe, tokenizer.get());
  parts.optimizer = recipe.optimizer.make();
  parts.learning_rate =
      std::make_unique<LearningRate>(recipe.learning_rate, recipe.decay.make(recipe.length()), recipe.length());
  parts.weight_decay = std::make_unique<WeightDecay>(recipe.weight_decay, recipe.length());

  parts.data = recipe.dataset.make(data_parts(recipe, tokenizer.get()));
  if (!parts.data->train)
    throw ConfigError(
        "dataset_config: there is nothing to train on; give a data_path, train_data_path, or a split whose first share "
        "is not 0");
  parts.train_order = order_of(recipe, parts.data->train.get());
  parts.valid_order = order_of(recipe, parts.data->valid.get());
  parts.test_order = order_of(recipe, parts.data->test.get());
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

TrainedModel load_trained(const std::filesystem::path& folder, const Shelves& shelves) {
  const auto checkpoint = open_newest(folder);
  TrainedModel out;
  out.folder = checkpoint.folder();
  if (!checkpoint.blobs().count(recipe_blob))
    throw ConfigError(text(out.folder.string(), ": holds no ", recipe_blob,
                           ", so its model is not known; was it saved by another program?"));
  const auto files = out.folder / "blobs";
  std::vector<std::string> sets;
  for (const auto& [name, content] : checkpoint.blobs())
    if (name.rfind("tokenizer.", 0) == 0) {
      const auto option = name.substr(10, name.find('.', 10) - 10);
      sets.push_back(text("dataset_config.", option, "=", (files / name).string()));
    }
  out.recipe = read_recipe((files / recipe_blob).string(), sets, shelves);
  out.tokenizer = out.recipe.tokenizer.make();
  out.model = build_model(out.recipe, out.tokenizer.get());
  out.weights = std::make_unique<ModelState>(*out.model, nullptr);
  load_weights(checkpoint, *out.weights, true);
  return out;
}

}  // namespace tessera
