#include "framework/recipe/saved_model.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <set>
#include <utility>

#include "framework/base/files.h"
#include "framework/base/memory_limit.h"
#include "framework/checkpoint/frozen_base.h"
#include "framework/options/yaml.h"
#include "framework/recipe/adapted_model.h"
#include "framework/recipe/build.h"
#include "framework/recipe/imported_recipe.h"

namespace tessera::recipe {
namespace {

/// The extension of a file, as far as the name of a blob can have it (checkpoint::Blobs).
std::string blob_extension(const std::filesystem::path& path) {
  const auto extension = path.extension().string();
  const bool fits = std::all_of(extension.begin(), extension.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '_' || c == '-';
  });
  return fits && extension.size() > 1 ? extension : "";
}

}  // namespace

checkpoint::Blobs tokenizer_blobs(const tokenizers::Tokenizer& tokenizer) {
  const auto sources = tokenizer.files();
  checkpoint::Blobs blobs;
  for (const auto& file : sources) {
    const std::filesystem::path path(file.path);
    const auto beside =
        std::count_if(sources.begin(), sources.end(), [&](const auto& other) { return other.option == file.option; });
    const bool in_folder = beside > 1 || path.filename() == "tokenizer.json";  // its name determines the type
    const auto name = in_folder ? "/" + path.filename().string() : blob_extension(path);
    blobs["tokenizer." + file.option + name] = read_file(path);
  }
  return blobs;
}

std::vector<std::string> tokenizer_sets(const checkpoint::Blobs& blobs, const std::filesystem::path& folder) {
  std::set<std::string> sets;
  for (const auto& [name, content] : blobs) {
    if (name.rfind("tokenizer.", 0) != 0) continue;
    const auto option = name.substr(10, name.find_first_of("./", 10) - 10);
    sets.insert(text("dataset_config.", option, "=", (folder / name.substr(0, name.find('/'))).string()));
  }
  return {sets.begin(), sets.end()};
}

namespace {

/// Opens the newest checkpoint; in our own format, the newest undamaged one. Changes nothing on disk.
std::unique_ptr<checkpoint::OpenedCheckpoint> newest_of(const std::vector<checkpoint::FoundCheckpoint>& found,
                                                        const options::Mappings& mappings) {
  if (found.front().format != nullptr) return checkpoint::open_checkpoint(found.front(), mappings);
  std::string damage;
  for (const auto& one : found) {
    if (one.format != nullptr) continue;
    try {
      return checkpoint::open_checkpoint(one, mappings);
    } catch (const checkpoint::DamageError& error) {
      damage += text("\n  ", error.what());
    }
  }
  throw checkpoint::DamageError(text("no checkpoint is usable:", damage));
}

/// The groups of `instead` are those of the tree.
void replace_groups(options::Value& tree, const options::Value& instead) {
  for (const auto& [name, group] : instead.fields) {
    std::erase_if(tree.fields, [&, of_name = name](const auto& field) { return field.name == of_name; });
    tree.fields.push_back({name, group});
  }
}

/// Reads the recipe and tokenizer from a checkpoint's blobs, the files in <folder>/blobs.
SavedRecipe recipe_in(const std::filesystem::path& folder, const checkpoint::Blobs& blobs, const Registries& registries,
                      const std::vector<std::string>& given_sets, const options::Value& instead) {
  const auto files = folder / "blobs";
  auto sets = tokenizer_sets(blobs, files);
  sets.insert(sets.end(), given_sets.begin(), given_sets.end());
  options::Report report;
  auto tree = options::read_yaml((files / checkpoint::recipe_blob).string(), sets, report);
  replace_groups(tree, instead);
  SavedRecipe out;
  out.recipe = read_recipe(tree, registries, report);
  report.must_be_good();
  out.tokenizer = out.recipe.tokenizer.make();
  return out;
}

/// The recipe that a checkpoint of another program describes, with the tokenizer beside it.
SavedRecipe described_recipe(const checkpoint::OpenedCheckpoint& checkpoint, const Registries& registries,
                             const std::vector<std::string>& given_sets, const options::Value& instead) {
  auto tree = checkpoint.recipe();
  replace_groups(tree, instead);
  auto sets = checkpoint.tokenizer_options();
  SavedRecipe out;
  if (sets.empty()) out.no_tokenizer = "it has neither tokenizer.json nor GPT-2's vocab.json and merges.txt";
  sets.insert(sets.end(), given_sets.begin(), given_sets.end());
  try {
    out.recipe = imported_recipe(tree, sets, registries);
    out.tokenizer = out.recipe.tokenizer.make();
  } catch (const ConfigError& error) {
    out.no_tokenizer = error.what();
    out.recipe = imported_recipe(tree, given_sets, registries);  // a mistake that is not the tokenizer's is thrown here
    out.tokenizer = out.recipe.tokenizer.make();
  }
  return out;
}

/// SavedModel::tokens; `now` is the recipe with the settings. All rows of mock data are tokens.
std::int64_t tokens_of(const checkpoint::OpenedCheckpoint& checkpoint, const SavedRecipe& now,
                       const Registries& registries) {
  const auto size = [](const SavedRecipe& one) { return one.tokenizer ? one.tokenizer->vocab_size() : 0; };
  try {
    const auto own = saved_recipe(checkpoint, registries);
    if (own.tokenizer || own.recipe.dataset.type == "mock") return size(own);
  } catch (const ConfigError&) {
    // The settings have corrected the recipe.
  }
  return size(now);
}

/// Reads `ranges`, which `source` must have.
void fill(const checkpoint::OpenedCheckpoint& source, const std::vector<checkpoint::TensorRange>& ranges) {
  source.must_fit_weights(ranges, ranges);
  for (const auto& range : ranges) {
    if (source.shape(range.name) == range.global_shape)
      source.read_box(range);
    else
      checkpoint::read_padded(source, range);
  }
}

}  // namespace

SavedRecipe saved_recipe(const checkpoint::OpenedCheckpoint& checkpoint, const Registries& registries,
                         const std::vector<std::string>& sets, const options::Value& instead) {
  if (checkpoint.blobs().count(checkpoint::recipe_blob))
    return recipe_in(checkpoint.folder(), checkpoint.blobs(), registries, sets, instead);
  return described_recipe(checkpoint, registries, sets, instead);
}

std::unique_ptr<checkpoint::OpenedCheckpoint> open_newest(const std::filesystem::path& folder,
                                                          const Registries& registries) {
  return newest_of(checkpoint::find_checkpoints(folder, registries.formats), registries.mappings);
}

std::unique_ptr<checkpoint::OpenedCheckpoint> open_with_frozen(const std::filesystem::path& folder,
                                                               const Registries& registries) {
  return checkpoint::with_frozen(open_newest(folder, registries),
                                 [&](const std::string& name) { return open_newest(name, registries); });
}

TrainedModel without_weights(const std::filesystem::path& folder, Recipe recipe,
                             std::unique_ptr<tokenizers::Tokenizer> tokenizer,
                             const checkpoint::WeightSource* mapped_from) {
  TrainedModel out;
  out.folder = folder;
  out.base = folder;
  out.recipe = std::move(recipe);
  out.tokenizer = std::move(tokenizer);
  out.model = build_model(out.recipe, out.tokenizer.get());
  require_memory(text(out.folder.string(), ": the model"), weight_bytes(*out.model, mapped_from));
  out.weights = std::make_unique<training::ModelState>(*out.model, nullptr);
  return out;
}

std::string saved_recipe_text(const std::filesystem::path& checkpoint, const Registries& registries,
                              const std::vector<std::string>& sets) {
  return resolved_yaml(read_recipe((checkpoint / "blobs" / checkpoint::recipe_blob).string(), sets, registries));
}

SavedModel open_saved(const std::filesystem::path& folder, const Registries& registries,
                      const std::vector<std::string>& given_sets) {
  const auto found = checkpoint::find_checkpoints(folder, registries.formats);
  if (const auto& newest = found.front(); newest.format != nullptr)
    throw ConfigError(text(newest.folder.string(),
                           ": is a checkpoint of another program; convert it first, with "
                           "`tessera checkpoint convert --from ",
                           newest.format->program(), " --to tessera ", newest.folder.string(), " NEW_FOLDER`"));
  const auto opened = newest_of(found, registries.mappings);
  auto saved = saved_recipe(*opened, registries, given_sets);
  const auto tokens = tokens_of(*opened, saved, registries);
  return {checkpoint::Checkpoint::open(opened->folder()), std::move(saved.recipe), std::move(saved.tokenizer), tokens};
}

TrainedModel load_trained(const std::filesystem::path& folder, const Registries& registries) {
  if (is_adapter_folder(folder, registries)) return load_adapted(open_adapted(folder, std::nullopt, registries));
  const auto opened = open_newest(folder, registries);
  if (checkpoint::base_in(opened->blobs())) {
    auto adapted = load_adapted(open_adapted(opened->folder(), std::nullopt, registries));
    const auto notes = opened->notes();
    adapted.notes.insert(adapted.notes.begin(), notes.begin(), notes.end());
    return adapted;
  }
  auto saved = saved_recipe(*opened, registries);
  auto out = without_weights(opened->folder(), std::move(saved.recipe), std::move(saved.tokenizer));
  out.notes = opened->notes();
  fill(*opened, out.weights->weight_ranges());
  out.weights->weights_changed();
  return out;
}

}  // namespace tessera::recipe
