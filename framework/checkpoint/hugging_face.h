#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "framework/checkpoint/safetensors.h"
#include "framework/checkpoint/weight_table.h"
#include "framework/options/mappings.h"

namespace tessera {

/// What config.json of Hugging Face Transformers says, as the group model_config of a recipe, by the table
/// mappings/models/<model_type>.yaml. Throws ConfigError, naming every key that stops it: an unknown model_type, a key
/// without a row, a word or a value that this program has nothing for.
struct HuggingFaceConfig {
  Value
      model_config;  ///< a group; the origin of each value is the file, or the table where the family's habit is meant
  std::string weights_table;  ///< "weights/llama.yaml"
};
HuggingFaceConfig read_hugging_face_config(const std::filesystem::path& file, const Mappings& mappings);

/// A folder with config.json and *.safetensors as `save_pretrained` writes it, seen through our names and layouts.
/// Opening reads headers only.
class HuggingFaceModel {
 public:
  /// Throws ConfigError for what read_hugging_face_config refuses, for tensors that the table wants and the files lack,
  /// and for tensors that the files have and no row takes; each by name.
  HuggingFaceModel(const std::filesystem::path& folder, const Mappings& mappings);

  const Value& model_config() const { return config_.model_config; }

  std::vector<std::string> names() const;  ///< ours, in the table's order
  bool has(const std::string& name) const { return rows_.count(name) != 0; }
  Shape shape(const std::string& name) const;  ///< in our layout
  /// Write tensor `name` in our layout, converted to float32, into `into`, which holds its elements.
  void read(const std::string& name, std::span<float> into) const;

  /// Elements of `name` in our layout (a weight, its gradient) as the tensors that the files keep: their names, shapes
  /// and order. The reverse of `read`.
  struct Theirs {
    std::string name;
    Shape shape;
    std::vector<float> elements;
  };
  std::vector<Theirs> theirs(const std::string& name, std::span<const float> elements) const;

 private:
  const WeightRow& row(const std::string& name) const;
  std::string found(const std::string& name) const;
  std::vector<Shape> part_shapes(const WeightRow& row) const;
  void refuse_missing_and_left_over() const;

  std::filesystem::path folder_;
  HuggingFaceConfig config_;
  SafetensorsReader files_;
  WeightTable table_;
  std::map<std::string, std::size_t> rows_;  ///< our name -> row of the table
};

}  // namespace tessera
