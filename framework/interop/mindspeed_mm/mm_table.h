#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "framework/interop/mindspeed_mm/mm_layout.h"
#include "framework/options/value.h"
#include "framework/tensor/shape.h"

namespace tessera::mindspeed_mm {

/// How tensor-parallel ranks divide a tensor.
enum class MmCut {
  none,     ///< every rank has all of it
  rows,     ///< each has consecutive rows
  columns,  ///< each has consecutive elements of every row
  gated     ///< each has consecutive rows of the first half of the rows, then of the second half
};

/// One tensor of the table, or of all layers of a tower.
struct MmRow {
  std::string ours, theirs;  ///< names, with {layer}
  std::size_t tower = 0;     ///< index in MmTable::towers()
  enum class At { layer, first, last } at = At::layer;
  MmCut cut = MmCut::none;
};

/// A name of a file and what it stands for.
struct MmName {
  const MmRow* row;
  std::int64_t layer;  ///< -1: it is in no layer
};

/// mappings/weights/mindspeed_mm.yaml: the tensors of MindSpeed-MM's checkpoints.
class MmTable {
 public:
  /// Throws ConfigError with the line of an invalid row.
  explicit MmTable(const options::Value& table);

  const std::vector<MmRow>& rows() const { return rows_; }
  /// The name of each tower's layers among ours, in the order of the forward pass: "vision_model.decoder".
  const std::vector<std::string>& towers() const { return towers_; }
  /// The beginnings of the option names of each tower: "vit".
  const std::vector<std::string>& tower_options() const { return tower_options_; }
  /// The row of their tensor `name`, whose layer is numbered as in `name`. Nothing: there is none.
  std::optional<MmName> theirs(const std::string& name) const;
  /// Their name of our tensor, with the same layer number. Throws ConfigError if the table has none.
  std::string name_of(const std::string& ours) const;
  bool ignores(const std::string& theirs) const;
  /// Whether our tensor is a query, key and value projection of the vision tower.
  bool is_tower_qkv(const std::string& ours) const;
  /// Their tensor that is a copy of another one in a model with tied embeddings, and that other one.
  const std::pair<std::string, std::string>& tied() const { return tied_; }

  /// The releases, and whether one leaves the tower's projection as Transformers has it. Throws ConfigError for an
  /// unknown release.
  std::vector<std::string> releases() const;
  bool concatenates_tower_qkv(const std::string& release) const;
  /// A line about a folder that is read as one of `release` or of one like it: files do not tell the order of that
  /// projection's rows.
  std::string assumption_of(const std::string& release) const;

 private:
  void add_row(const options::Value::Field& field);
  std::size_t tower_named(const options::Value& name) const;

  std::vector<MmRow> rows_;
  std::vector<std::string> towers_, tower_options_, ignored_;
  std::vector<std::pair<std::string, bool>> releases_;
  std::pair<std::string, std::string> tied_;
  std::string tower_qkv_;
};

/// Their name with another layer number.
std::string numbered_name(const MmRow& row, std::int64_t layer);
/// Our name of the same tensor.
std::string our_name(const MmRow& row, std::int64_t layer);

/// The shape of a rank's part of a tensor. Throws ShapeError, beginning with `name`, if the ranks cannot divide it.
Shape part_shape(const std::string& name, MmCut cut, const Shape& whole, std::int64_t ranks);
/// The inverse: the shape of the whole tensor.
Shape whole_shape(const std::string& name, MmCut cut, const Shape& part, std::int64_t ranks);

/// Copies the part of rank `rank` out of the elements of the whole tensor, which has shape `shape`, or with
/// `into_whole` into them. Both in bytes.
void move_part(MmCut cut, std::span<std::byte> whole, std::span<std::byte> part, const Shape& shape, std::int64_t rank,
               std::int64_t ranks, bool into_whole);

}  // namespace tessera::mindspeed_mm
