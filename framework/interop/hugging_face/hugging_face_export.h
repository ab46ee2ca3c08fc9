#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "framework/interop/hugging_face/hugging_face.h"

namespace tessera::hugging_face {

/// config.json of `family` for a model of this configuration, by the rows of its table read backwards; the spellings of
/// Transformers 4 and 5 side by side where they differ. `model_config` says every option that a row asks for.
///
/// `carried` is the config.json that the model once came with, or empty: what this program has no use for, such as the
/// ids of special tokens, is taken over from it. Throws ConfigError for an option whose value the family has no word
/// for.
std::string write_hugging_face_config(const options::Value& model_config, const std::string& family, DType dtype,
                                      const std::string& carried, const options::Mappings& mappings);

/// How weights are written for Transformers.
struct HuggingFaceExport {
  std::string family;                         ///< model_type
  std::optional<DType> dtype;                 ///< of every tensor; nothing: each as its source keeps it
  std::uint64_t shard_bytes = 5'000'000'000;  ///< of one file; more are listed in an index
  std::int64_t vocabulary = 0;                ///< rows that are tokens; what lies beyond is padding and left out
  checkpoint::Blobs files;                    ///< written beside it: config.json, tokenizer.json, ...
};

/// Write a folder as `save_pretrained` does: model.safetensors, or several files with an index, and `files`. All or
/// nothing: it comes into being under its name when it is complete. Returns what was left out or changed. Throws
/// ConfigError when `folder` exists and is not empty, for a tensor that the table of the family lacks or wants and the
/// source has not, and for weights that are not finite; IoError.
std::vector<std::string> write_hugging_face(const std::filesystem::path& folder, const options::Value& model_config,
                                            const checkpoint::WeightSource& weights, const HuggingFaceExport& how,
                                            const options::Mappings& mappings);

}  // namespace tessera::hugging_face
