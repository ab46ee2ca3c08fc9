#pragma once

#include <functional>
#include <string>
#include <vector>

#include "framework/options/value.h"
#include "framework/tensor/shape.h"

namespace tessera {

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
};

/// mappings/weights/<family>.yaml for a model of given size: rows for every layer, those left out whose `when` is not
/// true.
class WeightTable {
 public:
  /// `holds` says whether a key of model_config is true. Throws ConfigError with the table's line for what it may not
  /// say.
  WeightTable(const Value& table, std::int64_t layers, const HeadLayout& heads,
              const std::function<bool(const std::string& key)>& holds);

  const std::vector<WeightRow>& rows() const { return rows_; }
  const HeadLayout& heads() const { return heads_; }
  /// A beginning that their names may have or not have; may be empty.
  const std::string& optional_prefix() const { return optional_prefix_; }
  /// Whether the table says to drop their tensor `name`, given without the prefix.
  bool ignores(const std::string& name) const;

 private:
  HeadLayout heads_;
  std::vector<WeightRow> rows_;
  std::vector<std::string> ignored_;
  std::string optional_prefix_;
};

/// The shape of our tensor from those of its parts. Throws ShapeError when parts or steps do not fit it.
Shape shape_of(const WeightRow& row, const std::vector<Shape>& parts, const HeadLayout& heads);

/// `elements`, the parts one after the other, in our layout.
std::vector<float> to_ours(const WeightRow& row, std::vector<float> elements, const std::vector<Shape>& parts,
                           const HeadLayout& heads);
/// The reverse.
std::vector<float> to_theirs(const WeightRow& row, std::vector<float> elements, const std::vector<Shape>& parts,
                             const HeadLayout& heads);

}  // namespace tessera
