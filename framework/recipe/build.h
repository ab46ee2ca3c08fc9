#pragma once

#include <filesystem>

#include "framework/comm/world.h"
#include "framework/interop/megatron/megatron.h"
#include "framework/recipe/run_data.h"
#include "framework/training/model_state.h"
#include "framework/training/training_setup.h"

namespace tessera {

/// Where each process of the world stands in a run of this recipe. Collective. Throws ConfigError when the number of
/// processes does not fit the recipe, or processes have read different recipes.
ProcessGroups arrange(const Recipe& recipe, const World& world);

/// Everything that training needs from a recipe that was read without mistakes: this rank's part of it, with the data
/// that open_data gave. Throws ConfigError for what only constructing it can find.
TrainingSetup build(const Recipe& recipe, const ProcessGroups& processes, RunData data);
/// The same for a run of one process; opens the data.
TrainingSetup build(const Recipe& recipe);

/// Rows of the vocabulary, padding included. `tokenizer` may be null when the recipe gives vocab_size. Throws
/// ConfigError when the tokenizer has more tokens than that.
std::int64_t vocabulary(const Recipe& recipe, const Tokenizer* tokenizer);
/// What the recipe's dataset is to be made from, for a run of so many steps.
DataParts data_parts(const Recipe& recipe, const Tokenizer* tokenizer, std::int64_t iterations, int replicas = 1);
/// The schedules of a run of that length, at their beginning.
std::unique_ptr<OptimizerSchedule> build_schedule(const Recipe& recipe, const RunLength& length);
/// The whole, unsharded model of a recipe, without memory for its weights. `tokenizer` may be null if the recipe has
/// vocab_size.
std::unique_ptr<Model> build_model(const Recipe& recipe, const Tokenizer* tokenizer);
/// The chunks of one pipeline stage of `plan`, with the part of them that the tensor-parallel rank `tensor` holds;
/// without memory for weights. A rank of a run constructs its own; layout_figures constructs those of every stage.
/// `rows`: see vocabulary().
std::vector<std::unique_ptr<Model>> build_stage(const Recipe& recipe, std::int64_t rows, const LayerPlan& plan,
                                                std::int64_t stage, const TensorRank& tensor);

/// Steps of a run that is counted in passes over a training split of so many samples. Throws ConfigError when a pass
/// has none.
std::int64_t epoch_iterations(const Recipe& recipe, std::int64_t samples, std::int64_t replicas);
/// Of all weights of a model in fp32.
std::int64_t weight_bytes(Model& model);

/// A trained model by itself: what evaluation and generation need, from a checkpoint folder alone.
struct TrainedModel {
  Recipe recipe;
  std::unique_ptr<Tokenizer> tokenizer;  ///< null when the run had none
  std::unique_ptr<Model> model;
  std::unique_ptr<ModelState> weights;
  std::filesystem::path folder;  ///< the checkpoint it came from
};

/// What a checkpoint says of its model.
struct SavedRecipe {
  Recipe recipe;
  std::unique_ptr<Tokenizer> tokenizer;  ///< null when it has none
};
/// Of a checkpoint in Megatron-LM's format: the recipe and tokenizer that this program saved beside it, else the recipe
/// that its arguments describe, without a tokenizer. `sets` ("group.key=value") are laid over it. Throws ConfigError.
SavedRecipe saved_recipe(const MegatronCheckpoint& checkpoint, const Registries& registries,
                         const std::vector<std::string>& sets = {});
/// resolved.yaml of a checkpoint folder with `sets` laid over it, without the places of files inside that folder.
std::string saved_recipe_text(const std::filesystem::path& checkpoint, const Registries& registries,
                              const std::vector<std::string>& sets);

/// A checkpoint with the recipe and the tokenizer saved inside, its weights still on the disk.
struct SavedModel {
  Checkpoint checkpoint;
  Recipe recipe;
  std::unique_ptr<Tokenizer> tokenizer;  ///< null when the run had none
};
/// `folder` is a checkpoint, or a run folder, whose newest good checkpoint is taken (none is changed or set aside).
/// `sets` ("group.key=value") are laid over its recipe. Throws ConfigError, for Megatron-LM's format too; DamageError.
SavedModel open_saved(const std::filesystem::path& folder, const Registries& registries,
                      const std::vector<std::string>& sets = {});

/// The same with the weights in memory; also of Megatron-LM's format, and of a folder of Hugging Face Transformers
/// (recipe/hugging_face_model.h).
TrainedModel load_trained(const std::filesystem::path& folder, const Registries& registries);

/// The files of a tokenizer as blobs of a checkpoint, named after the option that they stand under:
/// "tokenizer.vocab_file.json", or for an option that names a folder "tokenizer.tokenizer_model/tokenizer.json".
Blobs tokenizer_blobs(const Tokenizer& tokenizer);
/// "dataset_config.OPTION=PATH" for each such option, where the blobs are the files of `folder`.
std::vector<std::string> tokenizer_sets(const Blobs& blobs, const std::filesystem::path& folder);

/// Name of the resolved recipe in run folders and checkpoints.
inline constexpr const char* recipe_blob = "resolved.yaml";

}  // namespace tessera
