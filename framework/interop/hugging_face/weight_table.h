#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "framework/model/architecture.h"
#include "framework/options/value.h"
#include "framework/tensor/shape.h"

namespace tessera::hugging_face {

/// A change of layout between their tensor and ours.
enum class WeightStep {
  transpose,    ///< [in, out] <-> [out, in]
  group_qkv,    ///< rows [all queries; all keys; all values] <-> [group][its queries, its key, its value][channel]
  expert,       ///< [experts, a, b, ...] -> [a, b, ...]: the part of the row's expert; first of the steps of a row
  interleaved,  ///< rows [gate 0, up 0, gate 1, ...] <-> [all of gate; all of up]
  flatten       ///< [rows, a, b, ...] <-> [rows, a x b x ...]; WeightRow::row_shape has a, b, ...
};

/// One of our tensors and its sources: the rows of the tensors `from` concatenated, then `steps` applied.
struct WeightRow {
  std::string name;
  std::vector<std::string> from;
  std::vector<WeightStep> steps;
  std::optional<bool> of_experts = std::nullopt;  ///< true: only in layers with experts; false: only in layers without
  bool always_float32 = false;               ///< always written as float32, independent of the type of other weights
  model::HeadLayout heads = {};              ///< of the tower of the tensor's layer, for group_qkv
  std::vector<std::int64_t> row_shape = {};  ///< extents of a row in the file, for flatten
  /// With the step expert: its index among the experts. The parts are then that index of the first extent of the
  /// tensors `from`, and the functions below see their shapes without it.
  std::optional<std::int64_t> expert = std::nullopt;
};

/// A tensor of the files that is a copy of another one, unless a row uses it.
struct WeightCopy {
  std::string name, of;
  bool written = false;  ///< also write it when exporting
};

/// mappings/weights/<family>.yaml expanded for a model: rows for every layer in order, within a layer for every expert
/// in order, without rows excluded by their `when` or `unless`. A row "<tower>.layers.{layer}..." is for the layers of
/// that tower, which are numbered within it; the towers follow each other.
class WeightTable {
 public:
  /// `value` returns the number that a key of model_config has: 1 for true, 0 for false, or if there is none. Throws
  /// ConfigError with the table's line for an invalid table.
  WeightTable(const options::Value& table, const model::WeightLayout& model,
              const std::function<double(const std::string& key)>& value);

  const std::vector<WeightRow>& rows() const { return rows_; }
  /// The files have the tensors for which `holds` is true as [out, in], whatever the table says: bitsandbytes
  /// transposes a weight before it quantises it.
  void take_transposed(const std::function<bool(const std::string& tensor)>& holds);
  /// The names that a tensor of the table may have in files: its own, then other spellings.
  std::vector<std::string> names_in_files(const std::string& name) const;
  /// The names of the table for which the name `name` in files, or in modules of Transformers, may stand.
  std::vector<std::string> names_in_table(const std::string& name) const;
  /// Whether the table ignores the tensor `name` of the files, in any spelling: it can be computed, or is a copy.
  bool ignores(const std::string& name) const;
  const std::vector<WeightCopy>& copies() const { return copies_; }
  /// Parts of names in files that modules of Transformers 5 have otherwise: {"block_sparse_moe", "mlp"}.
  const std::vector<std::pair<std::string, std::string>>& renamed_modules() const { return renamed_modules_; }
  /// `name` with the beginning that the modules of Transformers have, for a table whose other spellings are these.
  std::string as_module(const std::string& name) const;

 private:
  void add_tensors(const options::Value& tensors, const model::WeightLayout& model,
                   const std::function<double(const std::string& key)>& value);
  void add_predictions(const options::Value& prediction, const model::WeightLayout& model);

  std::vector<WeightRow> rows_, layer_rows_;  ///< layer_rows_: rows of one layer, with placeholders
  std::vector<std::string> ignored_;
  std::vector<WeightCopy> copies_;
  std::vector<std::pair<std::string, std::string>> renamed_modules_;
  bool modules_are_spelled_ = false;
  std::vector<std::pair<std::string, std::string>> spellings_;  ///< beginnings of names: in the table, in files
};

/// The shape of our tensor, computed from the shapes of its parts. Throws ShapeError if parts or steps do not fit
/// together.
Shape shape_of(const WeightRow& row, const std::vector<Shape>& parts);

/// The inverse of shape_of: the shapes of the parts of our tensor with shape `ours`. Three parts of a fused projection
/// are its queries, keys and values; other parts have equal numbers of rows. Throws ShapeError if it cannot be divided
/// that way.
std::vector<Shape> part_shapes_of(const WeightRow& row, const Shape& ours);

/// Rows of one of our matrices that lie in one part, one below the other.
struct RowsOfPart {
  std::size_t part;        ///< index in WeightRow::from
  std::int64_t row, rows;  ///< in that part
};
/// Rows [first, first + count) of our matrix, in order. Nothing if a step moves elements within rows.
std::optional<std::vector<RowsOfPart>> rows_in_parts(const WeightRow& row, const std::vector<Shape>& parts,
                                                     std::int64_t first, std::int64_t count);

/// Whether rows of the concatenated parts can be made without the others: they are whole rows of ours, or its columns.
bool makes_rows(const WeightRow& row);
/// The number of our row that row `theirs` of the concatenated parts is, of `rows` in all; if they are transposed, that
/// row of the transpose.
std::int64_t our_row_of(const WeightRow& row, std::int64_t rows, std::int64_t theirs);

/// The inverse of our_row_of.
std::int64_t their_row_of(const WeightRow& row, std::int64_t rows, std::int64_t ours);

/// Converts `elements`, each of `size` bytes, of the concatenated parts to our layout. Elements are moved, not changed.
std::vector<std::byte> to_ours(const WeightRow& row, std::vector<std::byte> elements, std::size_t size,
                               const std::vector<Shape>& parts);
/// The inverse of to_ours.
std::vector<std::byte> to_theirs(const WeightRow& row, std::vector<std::byte> elements, std::size_t size,
                                 const std::vector<Shape>& parts);

}  // namespace tessera::hugging_face
