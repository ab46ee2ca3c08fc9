#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "framework/interop/hugging_face/hugging_face.h"

namespace tessera::hugging_face {

/// The text of config.json of `family` for a model with this configuration, by the rows of its table in reverse; where
/// Transformers 4 and 5 use different keys, both are written. `model_config` has every option that a row needs.
///
/// `carried` is the config.json with which the model was imported, or empty: keys that Tessera does not use, such as
/// ids of special tokens, are copied from it. Throws ConfigError for an option value that the family cannot express.
std::string write_hugging_face_config(const options::Value& model_config, const std::string& family, DType dtype,
                                      const std::string& carried, const options::Mappings& mappings);

/// How weights are written for Transformers.
struct HuggingFaceExport {
  std::string family;                         ///< model_type
  std::optional<DType> dtype;                 ///< type of every tensor; nothing: the type in the source
  std::uint64_t shard_bytes = 5'000'000'000;  ///< maximum bytes of one file; several files get an index
  std::int64_t vocabulary = 0;                ///< rows that are tokens; further rows are padding and are dropped
  checkpoint::Blobs files;                    ///< further files to write: config.json, tokenizer.json, ...
};

/// Writes a folder as `save_pretrained` does: model.safetensors, or several files with an index, and `files`. The
/// folder gets its name only when it is complete. Returns notes about what was dropped or changed. Throws ConfigError
/// if `folder` exists and is not empty, if a tensor is not in the family's table or a tensor of the table is not in the
/// source, and for weights that are not finite; IoError.
std::vector<std::string> write_hugging_face(const std::filesystem::path& folder, const options::Value& model_config,
                                            const checkpoint::WeightSource& weights, const HuggingFaceExport& how,
                                            const options::Mappings& mappings);
/// The same by the names and layouts of `table`, for a model of any architecture; how.family only names it in messages.
std::vector<std::string> write_hugging_face(const std::filesystem::path& folder, WeightTable table,
                                            const checkpoint::WeightSource& weights, const HuggingFaceExport& how);

}  // namespace tessera::hugging_face
