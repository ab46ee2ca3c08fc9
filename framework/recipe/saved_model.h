#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "framework/checkpoint/find.h"
#include "framework/recipe/recipe.h"
#include "framework/training/state/model_state.h"

namespace tessera::recipe {

/// The description of the model in a checkpoint.
struct SavedRecipe {
  Recipe recipe;
  std::unique_ptr<tokenizers::Tokenizer> tokenizer;  ///< null if the checkpoint has none, or an unsupported one
  std::string no_tokenizer = {};                     ///< why `tokenizer` is null, for another program's checkpoint
};
/// Opens the newest checkpoint that `folder` is or contains, of any format; of our own, the newest undamaged one.
/// Changes nothing on disk. Throws ConfigError; DamageError if none is usable.
std::unique_ptr<checkpoint::OpenedCheckpoint> open_newest(const std::filesystem::path& folder,
                                                          const Registries& registries);
/// The same; if that checkpoint was saved without its frozen parameters, the one that has them
/// (checkpoint::with_frozen).
std::unique_ptr<checkpoint::OpenedCheckpoint> open_with_frozen(const std::filesystem::path& folder,
                                                               const Registries& registries);

/// Reads the recipe and tokenizer that Tessera saved in a checkpoint; else, the recipe that another program's
/// checkpoint describes, with the tokenizer beside it. `sets` ("group.key=value") are applied to the recipe; the groups
/// of the tree `instead` replace its own. Throws ConfigError.
SavedRecipe saved_recipe(const checkpoint::OpenedCheckpoint& checkpoint, const Registries& registries,
                         const std::vector<std::string>& sets = {}, const options::Value& instead = {});
/// The text of resolved.yaml of a checkpoint folder with `sets` applied. Paths of tokenizer files are not redirected to
/// the copies inside the folder. Throws ConfigError with all mistakes.
std::string saved_recipe_text(const std::filesystem::path& checkpoint, const Registries& registries,
                              const std::vector<std::string>& sets);

/// An opened checkpoint in our own format with the recipe and tokenizer saved in it; the weights are not read yet.
struct SavedModel {
  checkpoint::Checkpoint checkpoint;
  Recipe recipe;
  std::unique_ptr<tokenizers::Tokenizer> tokenizer;  ///< null if the run had none
  /// Number of tokens that the rows of the vocabulary begin with, which a conversion must keep: of the tokenizer that
  /// the checkpoint was saved with; if it has none, of the one that the settings choose; 0: not known.
  std::int64_t tokens = 0;
};
/// Opens `folder`, a checkpoint or a run folder; of a run folder, the newest undamaged checkpoint. No checkpoint is
/// changed or set aside. `sets` ("group.key=value") are applied to its recipe. Throws ConfigError, also for other
/// programs' formats; DamageError if no checkpoint is usable.
SavedModel open_saved(const std::filesystem::path& folder, const Registries& registries,
                      const std::vector<std::string>& sets = {});

/// A trained model, loaded from a checkpoint folder alone, for evaluation and generation.
struct TrainedModel {
  Recipe recipe;
  std::unique_ptr<tokenizers::Tokenizer> tokenizer;  ///< null if there is none
  std::unique_ptr<model::Model> model;
  std::unique_ptr<training::ModelState> weights;
  std::filesystem::path folder;    ///< the checkpoint or adapter that was loaded
  std::filesystem::path base;      ///< the folder that has the files of the model: `folder`, or that of its base
  std::vector<std::string> notes;  ///< OpenedCheckpoint::notes
};
/// A model with memory for its weights, which are not read yet. Throws ConfigError if it does not fit into memory,
/// without what will be mapped from `mapped_from`; null: nothing will.
TrainedModel without_weights(const std::filesystem::path& folder, Recipe recipe,
                             std::unique_ptr<tokenizers::Tokenizer> tokenizer,
                             const checkpoint::WeightSource* mapped_from = nullptr);
/// Loads the weights of `folder`, a checkpoint of any format or a run folder; of a run folder, the newest undamaged
/// checkpoint. Throws ConfigError, also if the model does not fit into memory; DamageError.
TrainedModel load_trained(const std::filesystem::path& folder, const Registries& registries);

/// The files of a tokenizer as checkpoint blobs, named after the option that gives the file:
/// "tokenizer.vocab_file.json", or for an option that names a folder "tokenizer.tokenizer_model/tokenizer.json". Throws
/// IoError if a file cannot be read.
checkpoint::Blobs tokenizer_blobs(const tokenizers::Tokenizer& tokenizer);
/// The settings "dataset_config.OPTION=PATH" that select the tokenizer files among `blobs`, which are the files of
/// `folder`.
std::vector<std::string> tokenizer_sets(const checkpoint::Blobs& blobs, const std::filesystem::path& folder);

}  // namespace tessera::recipe
