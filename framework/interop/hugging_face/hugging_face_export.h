#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "framework/checkpoint/filled_state.h"
#include "framework/interop/hugging_face/hugging_face.h"

namespace tessera::hugging_face {

/// The text of config.json of `family` for a model with this configuration, by the rows of its table in reverse; where
/// Transformers 4 and 5 use different keys, both are written. `model_config` has every option that a row needs.
///
/// `carried` is the config.json with which the model was imported, or empty: keys that Tessera does not use, such as
/// ids of special tokens, are copied from it. Throws ConfigError for an option value that the family cannot express.
std::string write_hugging_face_config(const options::Value& model_config, const std::string& family, DType dtype,
                                      const std::string& carried, const options::Mappings& mappings);

/// Which tensors are written to one file.
enum class Shards {
  size,   ///< as many as fit, in their order
  layer,  ///< those of a layer; of the first file also what precedes, of the last also what follows
  source  ///< those of a file that the model was read from; what it did not have, to the last file
};

/// How weights are written for Transformers.
struct HuggingFaceExport {
  std::string family;                         ///< model_type
  std::optional<DType> dtype;                 ///< type of every tensor; nothing: the type in the source
  Shards shards = Shards::size;               ///< several files get an index
  std::uint64_t shard_bytes = 5'000'000'000;  ///< Shards::size: maximum bytes of one file
  std::string index;                          ///< Shards::source: text of the model.safetensors.index.json
  std::int64_t vocabulary = 0;                ///< rows that are tokens; further rows are padding and are dropped
  checkpoint::Blobs files;                    ///< further files to write: config.json, tokenizer.json, ...
  std::size_t bytes_of_rows = checkpoint::FilledState::bytes_of_rows;  ///< of a tensor, in memory at a time
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
