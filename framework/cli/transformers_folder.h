#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "framework/checkpoint/weight_source.h"
#include "framework/recipe/recipe.h"

namespace tessera::cli {

/// How a folder of Transformers is written; also the arguments of commands that write one.
struct FolderFlags {
  std::string dtype;               ///< of every tensor; empty: as stored
  std::string family;              ///< model_type; empty: the one that fits
  std::string shard_size = "5GB";  ///< maximum size of one file, or "layer" or "source"
  std::int64_t vocabulary = 0;     ///< rows to write; 0: those that hold tokens
};
/// Text of the argument --shard-size.
inline constexpr const char* shard_size_text =
    "Maximum size of one file of weights for hf; layer: a file for each layer; source: the files of the folder of "
    "Transformers that the model was read from";
std::optional<DType> wanted_type(const FolderFlags& flags);

/// A model to be written for Transformers, with the files that are saved with it.
struct ModelToWrite {
  std::string in;  ///< for messages: the folder that it is read from
  const recipe::Recipe& recipe;
  const checkpoint::WeightSource& weights;
  const checkpoint::Blobs& blobs;  ///< files that were imported with the model, and those of the tokenizer
  const tokenizers::Tokenizer* tokenizer;
  std::int64_t tokens = 0;  ///< SavedModel::tokens
};
/// Writes the model as a folder that Transformers loads, and prints notes. Returns the model_type. Throws ConfigError
/// as hugging_face::write_hugging_face and family_that_fits do, and for flags that do not fit the model.
std::string write_transformers_folder(const std::filesystem::path& out, const ModelToWrite& model,
                                      const FolderFlags& flags, const recipe::Registries& registries);

/// Prints "note: ..." for each.
void tell_notes(const std::vector<std::string>& notes);

}  // namespace tessera::cli
