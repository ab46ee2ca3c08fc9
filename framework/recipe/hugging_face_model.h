#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "framework/interop/hugging_face/hugging_face.h"
#include "framework/recipe/build.h"

namespace tessera {

/// The files beside a model that Transformers needs and this program only carries along: config.json, tokenizer.json,
/// generation_config.json, ... They are blobs "hf.<name>" of a checkpoint.
Blobs carried_files(const std::filesystem::path& hugging_face_folder);
inline constexpr const char* carried_prefix = "hf.";

/// The options of dataset_config ("group.key=value") that choose the tokenizer in such a folder: HuggingFaceTokenizer
/// for tokenizer.json, GPT2BPETokenizer for GPT-2's vocab.json and merges.txt alone. Empty if it has neither.
std::vector<std::string> folder_tokenizer_sets(const std::filesystem::path& hugging_face_folder);

/// The recipe of a model that another program describes: `tree`, with `sets` ("group.key=value") laid over it. Throws
/// ConfigError with all mistakes.
Recipe imported_recipe(Value tree, const std::vector<std::string>& sets, const Registries& registries);

/// A recipe with which an imported model can be evaluated, generated from and trained on: its configuration as
/// model_config, `sets` ("group.key=value") laid over it. seq_length is max_position_embeddings, 2048 at most. Throws
/// ConfigError with all mistakes.
Recipe recipe_of(const HuggingFaceModel& model, const std::vector<std::string>& sets, const Registries& registries);

/// The same with the tokenizer of the model's folder.
struct FolderRecipe {
  Recipe recipe;
  std::unique_ptr<Tokenizer> tokenizer;  ///< null if the folder has none, or one that is not supported
  std::string no_tokenizer;              ///< why it is null
};
FolderRecipe recipe_of_folder(const HuggingFaceModel& model, const std::filesystem::path& folder,
                              const std::vector<std::string>& sets, const Registries& registries);

/// A run that begins from a model of Transformers (training_config.load_checkpoint) has that model's configuration
/// where the recipe says nothing: lay the recipe's model_config on it. What is wrong with it goes to `report`.
void lay_on_given_model(Value& tree, const Mappings& mappings, Report& report);

/// A folder as save_pretrained writes it, ready to be evaluated and generated from. `tokenizer` is null when it has
/// none that this program knows.
TrainedModel load_hugging_face(const std::filesystem::path& folder, const Registries& registries,
                               const Mappings& mappings);

/// model_config with what follows from it said outright: sizes, groups of keys and values, each bias; vocab_size is
/// `vocabulary`. Throws ConfigError when the model is no gpt.
Value whole_model_config(const Recipe& recipe, std::int64_t vocabulary);

/// The first of `candidates`, families of Transformers, that computes what this model does: the config.json written for
/// it reads back to the same model. Throws ConfigError, telling for the nearest what differs.
std::string family_that_fits(const Recipe& recipe, std::int64_t vocabulary, const std::vector<std::string>& candidates,
                             const Registries& registries, const Mappings& mappings);

}  // namespace tessera
