#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "framework/checkpoint/format.h"
#include "framework/checkpoint/safetensors.h"
#include "framework/checkpoint/weight_source.h"
#include "framework/interop/hugging_face/weight_table.h"
#include "framework/options/mappings.h"

namespace tessera::hugging_face {

/// What config.json of Hugging Face Transformers says, as the group model_config of a recipe, by the table
/// mappings/models/<model_type>.yaml.
struct HuggingFaceConfig {
  /// A group; the origin of each value is the file, or the table where the family's habit is meant. The options of
  /// moe_config are a group of that name in it.
  options::Value model_config;
  std::string family;         ///< model_type
  std::string weights_table;  ///< "weights/llama.yaml"
};
/// Throws ConfigError, naming every key that stops it: an unknown model_type, a key without a row, a word or a value
/// that this program has nothing for, a key that is missing, keys that contradict each other.
HuggingFaceConfig read_hugging_face_config(const std::filesystem::path& file, const options::Mappings& mappings);
/// The same of a text; messages begin with `speaker`.
HuggingFaceConfig parse_hugging_face_config(const std::string& words, const std::string& speaker,
                                            const options::Mappings& mappings);

/// The tree of a recipe that has this model_config, and the moe_config in it; seq_length is max_position_embeddings,
/// 2048 at most.
options::Value recipe_with(const options::Value& model_config);

/// The families there are tables for, in the order of the alphabet.
std::vector<std::string> hugging_face_families(const options::Mappings& mappings);
/// The table of a family, with the one it is `like` below it. Throws ConfigError for an unknown family.
options::Value hugging_face_table(const options::Mappings& mappings, const std::string& family);
/// How the attention of `model_config` is cut, for messages that begin with `speaker`.
HeadLayout head_layout(const options::Value& model_config, const std::string& speaker);
/// The table of weights for a model of that configuration.
WeightTable weight_table(const std::string& name, const options::Value& model_config, const options::Mappings& mappings,
                         const std::string& speaker);

/// Transformers drops the layers of multi-token prediction from the files and keeps saying their number: without any
/// tensor of them in `files`, `config` has none.
void drop_absent_predictions(HuggingFaceConfig& config, const checkpoint::SafetensorsReader& files,
                             const options::Mappings& mappings, const std::string& speaker);

/// Folders as save_pretrained of Transformers writes them: config.json and *.safetensors.
class HuggingFaceFormat final : public checkpoint::CheckpointFormat {
 public:
  std::string name() const override { return "hf"; }
  std::string program() const override { return "hf"; }
  /// A folder that holds a config.json and no checkpoint of ours.
  std::optional<std::filesystem::path> find(const std::filesystem::path& folder) const override;
  std::unique_ptr<checkpoint::OpenedCheckpoint> open(const std::filesystem::path& folder,
                                                     const options::Mappings& mappings) const override;
  std::optional<options::Value> model_config(const std::filesystem::path& folder,
                                             const options::Mappings& mappings) const override;
  std::filesystem::path model_config_file(const std::filesystem::path& folder) const override;
  /// What Transformers needs beside a model and this program only carries along: config.json, tokenizer.json,
  /// generation_config.json, ... as blobs "hf.<name>" of a checkpoint.
  checkpoint::Blobs carried_files(const std::filesystem::path& folder) const override;
};
inline constexpr const char* carried_prefix = "hf.";

/// The options of dataset_config ("group.key=value") that choose the tokenizer in such a folder: HuggingFaceTokenizer
/// for tokenizer.json, GPT2BPETokenizer for GPT-2's vocab.json and merges.txt alone. Empty if it has neither.
std::vector<std::string> folder_tokenizer_sets(const std::filesystem::path& folder);

/// A folder with config.json and *.safetensors as `save_pretrained` writes it, seen through our names and layouts.
/// Opening reads headers only.
class HuggingFaceModel final : public checkpoint::OpenedCheckpoint {
 public:
  /// A model whose files have no layer of multi-token prediction has none, whatever config.json says. Throws
  /// ConfigError for what read_hugging_face_config refuses, for tensors that the table wants and the files lack,
  /// for tensors that the files have and no row takes, for one whose elements are no floating-point numbers, for an
  /// embedding of another size than config.json says, and for a copy of a tensor that differs from it; each by name.
  HuggingFaceModel(const std::filesystem::path& folder, const options::Mappings& mappings);

  const options::Value& model_config() const { return config_.model_config; }
  const std::string& family() const { return config_.family; }

  const std::filesystem::path& folder() const override { return folder_; }
  std::vector<std::string> names() const override;  ///< in the table's order
  bool has(const std::string& name) const override { return rows_.count(name) != 0; }
  Shape shape(const std::string& name) const override;
  DType dtype(const std::string& name) const override;  ///< float32 when its parts differ
  void read(const std::string& name, const Tensor& into) const override;
  void read(const std::string& name, std::span<float> into) const;

  const checkpoint::Blobs& blobs() const override { return carried_; }  ///< carried_files of its folder
  options::Value recipe() const override { return recipe_with(config_.model_config); }
  std::vector<std::string> tokenizer_options() const override { return folder_tokenizer_sets(folder_); }
  std::string description() const override { return "Hugging Face Transformers, " + config_.family; }
  std::uint64_t bytes() const override;
  void verify() const override;  ///< Throws ConfigError: the files have no checksums.

  /// Elements of `name` in our layout (a weight, its gradient) as the tensors that the files keep: their names, shapes
  /// and order. The reverse of `read`.
  struct Theirs {
    std::string name;
    Shape shape;
    std::vector<float> elements;
  };
  std::vector<Theirs> theirs(const std::string& name, std::span<const float> elements) const;

 private:
  WeightTable table_of_files(const options::Mappings& mappings);
  const WeightRow& row(const std::string& name) const;
  std::string found(const std::string& name) const;
  std::vector<Shape> part_shapes(const WeightRow& row) const;
  void refuse_missing_and_left_over() const;
  void refuse_other_types() const;
  void refuse_copies_that_differ() const;
  void refuse_another_size() const;

  std::filesystem::path folder_;
  checkpoint::Blobs carried_;
  HuggingFaceConfig config_;
  checkpoint::SafetensorsReader files_;
  WeightTable table_;
  std::map<std::string, std::size_t> rows_;  ///< our name -> row of the table
};

}  // namespace tessera::hugging_face
