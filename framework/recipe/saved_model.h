#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "framework/checkpoint/find.h"
#include "framework/recipe/recipe.h"
#include "framework/training/model_state.h"

namespace tessera::recipe {

/// What a checkpoint says of its model.
struct SavedRecipe {
  Recipe recipe;
  std::unique_ptr<data::Tokenizer> tokenizer;  ///< null when it has none, or none that is supported
  std::string no_tokenizer = {};               ///< why it is null, if the checkpoint is another program's
};
/// The recipe and tokenizer that this program saved in a checkpoint; else the recipe that the checkpoint describes,
/// with the tokenizer beside it. `sets` ("group.key=value") are laid over it. Throws ConfigError.
SavedRecipe saved_recipe(const checkpoint::OpenedCheckpoint& checkpoint, const Registries& registries,
                         const std::vector<std::string>& sets = {});
/// resolved.yaml of a checkpoint folder with `sets` laid over it, without the places of files inside that folder.
std::string saved_recipe_text(const std::filesystem::path& checkpoint, const Registries& registries,
                              const std::vector<std::string>& sets);

/// A checkpoint of our own with the recipe and the tokenizer saved inside, its weights still on the disk.
struct SavedModel {
  checkpoint::Checkpoint checkpoint;
  Recipe recipe;
  std::unique_ptr<data::Tokenizer> tokenizer;  ///< null when the run had none
};
/// `folder` is a checkpoint, or a run folder, whose newest good checkpoint is taken (none is changed or set aside).
/// `sets` ("group.key=value") are laid over its recipe. Throws ConfigError, for other programs' formats too;
/// DamageError.
SavedModel open_saved(const std::filesystem::path& folder, const Registries& registries,
                      const std::vector<std::string>& sets = {});

/// A trained model by itself: what evaluation and generation need, from a checkpoint folder alone.
struct TrainedModel {
  Recipe recipe;
  std::unique_ptr<data::Tokenizer> tokenizer;  ///< null when there is none
  std::unique_ptr<model::Model> model;
  std::unique_ptr<training::ModelState> weights;
  std::filesystem::path folder;  ///< the checkpoint it came from
};
/// A checkpoint of any format, or the newest good one of a run folder, with the weights in memory. Throws ConfigError,
/// DamageError.
TrainedModel load_trained(const std::filesystem::path& folder, const Registries& registries);

/// The files of a tokenizer as blobs of a checkpoint, named after the option that they stand under:
/// "tokenizer.vocab_file.json", or for an option that names a folder "tokenizer.tokenizer_model/tokenizer.json".
checkpoint::Blobs tokenizer_blobs(const data::Tokenizer& tokenizer);
/// "dataset_config.OPTION=PATH" for each such option, where the blobs are the files of `folder`.
std::vector<std::string> tokenizer_sets(const checkpoint::Blobs& blobs, const std::filesystem::path& folder);

}  // namespace tessera::recipe
