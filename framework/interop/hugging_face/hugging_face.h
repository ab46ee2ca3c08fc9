#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "framework/checkpoint/format.h"
#include "framework/checkpoint/safetensors.h"
#include "framework/checkpoint/weight_source.h"
#include "framework/interop/hugging_face/packed_weights.h"
#include "framework/interop/hugging_face/weight_table.h"
#include "framework/options/mappings.h"

namespace tessera::hugging_face {

/// A config.json of Hugging Face Transformers, converted to the recipe group model_config by the table
/// mappings/models/<model_type>.yaml.
struct HuggingFaceConfig {
  /// The origin of each value is the file, or the table if the value is the family's default. The options of moe_config
  /// are a nested group of that name.
  options::Value model_config;
  std::string family;         ///< model_type
  std::string weights_table;  ///< "weights/llama.yaml"
  /// What was decided in reading it, for people: keys that were ignored, defaults of one version of Transformers.
  std::vector<std::string> notes = {};
};
/// Reads config.json. Throws ConfigError, naming every unsupported key: an unknown model_type, a key without a row, a
/// word or value without a counterpart, a missing key, contradictory keys.
HuggingFaceConfig read_hugging_face_config(const std::filesystem::path& file, const options::Mappings& mappings);
/// Parses the text of a config.json; error messages begin with `speaker`.
HuggingFaceConfig parse_hugging_face_config(const std::string& words, const std::string& speaker,
                                            const options::Mappings& mappings);

/// The tree of a recipe with this model_config and the moe_config in it; seq_length is max_position_embeddings, at most
/// 2048.
options::Value recipe_with(const options::Value& model_config);

/// The families for which tables exist, sorted.
std::vector<std::string> hugging_face_families(const options::Mappings& mappings);
/// The same for a search: each after those whose table its own is `like`, so that a model which several families
/// compute gets the plainest.
std::vector<std::string> families_to_choose_from(const options::Mappings& mappings);
/// The table of a family, merged over the table named by its `like`. Throws ConfigError for an unknown family.
options::Value hugging_face_table(const options::Mappings& mappings, const std::string& family);
/// Throws ConfigError, beginning with `speaker`, if the attention heads of `model_config` are inconsistent.
void check_heads(const options::Value& model_config, const std::string& speaker);
/// The table `name` of weights for a model with this configuration.
WeightTable weight_table(const std::string& name, const options::Value& model_config, const options::Mappings& mappings,
                         const std::string& speaker);

/// Transformers drops the layers of multi-token prediction from the files but keeps their number in config.json. If
/// `files` has none of their tensors, removes these layers from `config`.
void drop_absent_predictions(HuggingFaceConfig& config, const checkpoint::NamedTensors& files,
                             const options::Mappings& mappings, const std::string& speaker);

/// The tensors in `folder`, a model that `config` describes. Of a state dict of torch.distributed.checkpoint that has
/// the model's below some key, these.
std::unique_ptr<const checkpoint::NamedTensors> open_model_tensors(const std::filesystem::path& folder,
                                                                   const HuggingFaceConfig& config,
                                                                   const options::Mappings& mappings);

/// The format of folders written by save_pretrained of Transformers: config.json and *.safetensors.
class HuggingFaceFormat final : public checkpoint::CheckpointFormat {
 public:
  std::string name() const override { return "hf"; }
  std::string program() const override { return "hf"; }
  /// `folder` itself if it contains a config.json and no checkpoint in our own format.
  std::optional<std::filesystem::path> find(const std::filesystem::path& folder) const override;
  std::unique_ptr<checkpoint::OpenedCheckpoint> open(const std::filesystem::path& folder,
                                                     const options::Mappings& mappings) const override;
  std::optional<options::Value> model_config(const std::filesystem::path& folder, const options::Mappings& mappings,
                                             std::vector<std::string>& notes) const override;
  std::string weights_table(const std::filesystem::path& folder, const options::Mappings& mappings) const override;
  std::filesystem::path model_config_file(const std::filesystem::path& folder) const override;
  /// See quantised_folder.h.
  std::filesystem::path quantised(const std::filesystem::path& folder, const checkpoint::Quantisation& how,
                                  const options::Mappings& mappings, std::vector<std::string>& notes) const override;
  std::optional<std::int64_t> quantised_bytes(const std::string& name, std::int64_t elements,
                                              const checkpoint::Quantisation& how) const override;
  /// Files that Transformers needs beside a model and that Tessera only copies: config.json, tokenizer.json,
  /// generation_config.json, ..., as blobs "hf.<name>" of a checkpoint.
  checkpoint::Blobs carried_files(const std::filesystem::path& folder) const override;
};
inline constexpr const char* carried_prefix = "hf.";
/// The index of a folder with several files of weights, and the blob in which carried_files() has it.
inline constexpr const char* index_file = "model.safetensors.index.json";
inline constexpr const char* carried_index = "hf_index.json";

/// The options of dataset_config ("group.key=value") that select the tokenizer in such a folder: HuggingFaceTokenizer
/// for tokenizer.json, GPT2BPETokenizer for GPT-2's vocab.json and merges.txt alone. Empty if it has neither.
std::vector<std::string> folder_tokenizer_sets(const std::filesystem::path& folder);

/// The tokens that end a text: `eos_token_id`, a number or a list, of generation_config.json, else of config.json, in a
/// folder of Transformers or among the files that a checkpoint of ours carries (blobs/hf.*). Empty if neither says so.
std::vector<std::int32_t> end_tokens(const std::filesystem::path& folder);

/// A folder with config.json and *.safetensors, as `save_pretrained` writes it, accessed with our names and layouts; or
/// with config.json and what torch.distributed.checkpoint saved of several processes. Opening reads only headers.
/// Weights may be in a storage type of packed_weights.h. Optimizer state that torch.distributed.checkpoint saved beside
/// the model, as torch's get_optimizer_state_dict names it, is there as "optimizer.<word>.<weight>", in our layouts
/// too.
class HuggingFaceModel final : public checkpoint::OpenedCheckpoint {
 public:
  /// Opens the folder. A model whose files have no layers of multi-token prediction has none, whatever config.json
  /// says. Throws ConfigError as read_hugging_face_config does, and, by name, for tensors that the table requires and
  /// the files lack, tensors in the files that no row uses, tensors that are not floating point, an embedding whose
  /// size differs from config.json, and a copy of a tensor that differs from the tensor.
  HuggingFaceModel(const std::filesystem::path& folder, const options::Mappings& mappings);

  const options::Value& model_config() const { return config_.model_config; }
  const std::string& family() const { return config_.family; }
  const WeightTable& table() const { return table_; }
  /// The name in the files of the tensor `name` of the table, whose prefix may be missing there; empty: there is none.
  std::string found(const std::string& name) const;
  /// Whether some weights are in a storage type of packed_weights.h.
  bool is_packed() const { return !packed_.empty(); }

  const std::filesystem::path& folder() const override { return folder_; }
  std::vector<std::string> names() const override;  ///< in the table's order
  bool has(const std::string& name) const override { return rows_.count(name) != 0 || state_of(name).first != nullptr; }
  Shape shape(const std::string& name) const override;
  DType dtype(const std::string& name) const override;  ///< float32 if the types of its parts differ
  void read(const std::string& name, const Tensor& into) const override;
  void read(const std::string& name, std::span<float> into) const;
  /// Of a matrix, reads no other elements.
  void read_box(const checkpoint::TensorRange& into) const override;
  bool reads_rows(const std::string& name) const override;
  /// Maps weights that the files have as one tensor in our layout.
  std::optional<checkpoint::MappedTensor> map(const checkpoint::TensorRange& range) const override;
  /// The rows of a matrix in the tensors of the files, unless a step of its row in the table moves elements in rows.
  std::optional<StoredMatrix> stored(const checkpoint::TensorRange& range) const override;
  std::string_view storage_type(const std::string& name) const override;

  std::vector<std::string> optimizer_names() const override;
  std::int64_t iteration() const override { return states_.empty() ? 0 : steps_; }
  /// With optimizer state: its number of steps. The rest is unknown: no samples were consumed, there is no seed.
  std::optional<checkpoint::Progress> progress() const override;
  bool continues_by_request() const override { return true; }

  const checkpoint::Blobs& blobs() const override { return carried_; }  ///< the carried_files of its folder
  options::Value recipe() const override { return recipe_with(config_.model_config); }
  std::vector<std::string> tokenizer_options() const override { return folder_tokenizer_sets(folder_); }
  std::vector<std::string> notes() const override;
  std::vector<std::string> notes_of_files() const override;
  std::string description() const override;
  std::uint64_t bytes() const override;
  void verify() const override;  ///< Throws DamageError; ConfigError if the files have no checksums.

  /// Converts `elements` of the weight `name` in our layout (the weight, its gradient) to the tensors of the files:
  /// their names, shapes and order. The inverse of `read`. An expert's part of a tensor of all experts has its number
  /// behind the name: "experts.down_proj[3]".
  struct Theirs {
    std::string name;
    Shape shape;
    std::vector<float> elements;
  };
  std::vector<Theirs> theirs(const std::string& name, std::span<const float> elements) const;

 private:
  /// The tensors `files`, which have the names of those of `model`, in place of these.
  HuggingFaceModel(const HuggingFaceModel& model, std::unique_ptr<const checkpoint::NamedTensors> files);
  void check_tensors();
  void take_states();
  /// The tensors of which `name` is the state, and the weight to which it belongs; null: it is no state.
  std::pair<const HuggingFaceModel*, std::string> state_of(const std::string& name) const;
  WeightTable table_of_files(const options::Mappings& mappings);
  const WeightRow& row(const std::string& name) const;
  std::vector<Shape> part_shapes(const WeightRow& row) const;
  const PackedWeight* packed(const std::string& part) const { return packed_.find(found(part)); }
  DType type_of_part(const std::string& part) const;
  Shape shape_of_expert(const WeightRow& row, const std::string& name, const Shape& whole) const;
  void read_part(const WeightRow& row, std::size_t number, const Tensor& into) const;
  void read_rows(const std::string& name, const StoredRows& rows, const Tensor& into) const;
  bool has_boxes(const WeightRow& row) const;
  void read_parts(const WeightRow& row, const checkpoint::TensorRange& into) const;
  std::optional<checkpoint::MappedTensor> moved(const WeightRow& row) const;
  void read_moved(const WeightRow& row, const Tensor& from, const checkpoint::TensorRange& into) const;
  void find_not_finite(const std::string& name) const;
  bool append_part(StoredMatrix& matrix, const std::string& part, const RowsOfPart& rows, std::int64_t column) const;
  void refuse_missing_and_left_over() const;
  void refuse_other_types() const;
  void refuse_copies_that_differ() const;
  void refuse_another_size() const;

  std::filesystem::path folder_;
  checkpoint::Blobs carried_;
  HuggingFaceConfig config_;
  std::unique_ptr<const checkpoint::NamedTensors> files_;
  PackedWeights packed_;
  WeightTable table_;
  std::map<std::string, std::size_t> rows_;                                ///< our name -> row of the table
  std::map<std::string, std::unique_ptr<const HuggingFaceModel>> states_;  ///< of the optimizer, by word: "exp_avg"
  std::int64_t steps_ = 0;                                                 ///< of the optimizer
  std::string no_states_;  ///< why state that is in the files is not read
};

}  // namespace tessera::hugging_face
