#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "framework/options/value.h"
#include "framework/tensor/shape.h"

namespace tessera::hugging_face {

/// How the attention of a model is cut into heads.
struct HeadLayout {
  std::int64_t heads = 0, groups = 0, channels = 0;
  std::int64_t rows() const { return (heads + 2 * groups) * channels; }  ///< of a fused projection
};

/// A change of layout between their tensor and ours.
enum class WeightStep {
  transpose,  ///< [in, out] <-> [out, in]
  group_qkv   ///< rows [all queries; all keys; all values] <-> [group][its queries, its key, its value][channel]
};

/// One of our tensors and what it is made of: the rows of `from` one below the other, then `steps`.
struct WeightRow {
  std::string name;
  std::vector<std::string> from;
  std::vector<WeightStep> steps;
  std::optional<bool> of_experts = std::nullopt;  ///< only in layers that have experts, or only in those that have none
  bool always_float32 = false;                    ///< written as float32 whatever type the other weights get
};

/// A tensor of theirs that repeats another of theirs when no row takes it.
struct WeightCopy {
  std::string name, of;
  bool written = false;  ///< a folder that is written has it too
};

/// The layers of a model.
struct ModelLayers {
  std::int64_t layers = 0, experts = 0;  ///< experts: of each layer that has some
  std::int64_t predictions = 0;          ///< layers of multi-token prediction; theirs are numbered behind the others
  /// Whether layer `index` has experts; a layer of multi-token prediction is as the last of the others. Empty: every
  /// layer has, if there are any.
  std::function<bool(std::int64_t index)> has_experts = {};
};

/// mappings/weights/<family>.yaml for a model of given size: rows for every layer, one layer after the other, and in it
/// for every expert, one expert after the other; those left out whose `when` or `unless` says so.
class WeightTable {
 public:
  /// `holds` says whether a key of model_config is true or a number other than 0. Throws ConfigError with the table's
  /// line for what it may not say.
  WeightTable(const options::Value& table, const ModelLayers& model, const HeadLayout& heads,
              const std::function<bool(const std::string& key)>& holds);

  const std::vector<WeightRow>& rows() const { return rows_; }
  const HeadLayout& heads() const { return heads_; }
  /// A beginning that their names may lack; may be empty.
  const std::string& optional_prefix() const { return optional_prefix_; }
  /// Whether the table says to drop their tensor `name`, with the prefix or without: a table anybody can compute, or a
  /// copy.
  bool ignores(const std::string& name) const;
  const std::vector<WeightCopy>& copies() const { return copies_; }

 private:
  void add_tensors(const options::Value& tensors, const ModelLayers& model,
                   const std::function<bool(const std::string& key)>& holds);
  void add_predictions(const options::Value& prediction, const ModelLayers& model);

  HeadLayout heads_;
  std::vector<WeightRow> rows_, layer_rows_;  ///< layer_rows_: of any layer, by their marks
  std::vector<std::string> ignored_;
  std::vector<WeightCopy> copies_;
  std::string optional_prefix_;
};

/// The shape of our tensor from those of its parts. Throws ShapeError when parts or steps do not fit it.
Shape shape_of(const WeightRow& row, const std::vector<Shape>& parts, const HeadLayout& heads);

/// The reverse: the shapes of the parts that our tensor of shape `ours` is made of. Three parts of a fused projection
/// are its queries, keys and values; any other parts have equally many rows. Throws ShapeError when it cannot be cut
/// so.
std::vector<Shape> part_shapes_of(const WeightRow& row, const Shape& ours, const HeadLayout& heads);

/// `elements`, each of `size` bytes, the parts one after the other, in our layout. Elements move, none changes.
std::vector<std::byte> to_ours(const WeightRow& row, std::vector<std::byte> elements, std::size_t size,
                               const std::vector<Shape>& parts, const HeadLayout& heads);
/// The reverse.
std::vector<std::byte> to_theirs(const WeightRow& row, std::vector<std::byte> elements, std::size_t size,
                                 const std::vector<Shape>& parts, const HeadLayout& heads);

}  // namespace tessera::hugging_face
