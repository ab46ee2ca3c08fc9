#pragma once

#include <optional>
#include <string>
#include <vector>

#include "framework/autograd/tape.h"
#include "framework/tensor/parameter_role.h"

namespace tessera::nn {

/// The initial distribution of a parameter. Random draws are keyed by the parameter's global name and the element's
/// index in the unsharded tensor, so they are the same on every parallel layout.
struct Init {
  enum class Kind { zeros, ones, normal, constant, uniform } kind = Kind::zeros;
  double std = 0;  ///< normal: the standard deviation; constant: the value; uniform: draws are in [-std, std)
  static Init zeros() { return {}; }
  static Init constant(double value) { return {Kind::constant, value}; }
  static Init uniform(double bound) { return {Kind::uniform, bound}; }
  static Init ones() { return {Kind::ones, 0}; }
  static Init normal(double std) { return {Kind::normal, std}; }
};

/// The elements [first, first + count) of an array.
struct ElementRange {
  std::int64_t first = 0, count = 0;
};

/// Which part of an unsharded tensor this rank has: strips (ranges along one dimension), stored one after the other in
/// the given order. Several ranks may have the same strip. One of them owns it: that one contributes these elements to
/// sums over the model (gradient norm, number of parameters) and saves them to checkpoints.
struct TensorCut {
  struct Strip {
    std::int64_t first, count;  ///< along `dim` of the unsharded tensor
    bool owned = true;
  };
  std::size_t dim = 0;        ///< several strips are possible only for dim 0
  std::vector<Strip> strips;  ///< empty: the whole tensor, owned

  /// The whole of a tensor with `extent` rows that another rank owns.
  static TensorCut copy(std::int64_t extent) { return {0, {{0, extent, false}}}; }
  /// Part `index` of `count` equal parts of dimension `dim` with `extent` elements. `count` must divide `extent`.
  static TensorCut even(std::size_t dim, std::int64_t extent, int index, int count) {
    return {dim, {{extent / count * index, extent / count, true}}};
  }
  std::int64_t extent() const;         ///< of all strips together, along `dim`
  Shape of(const Shape& whole) const;  ///< shape of this rank's part of a tensor of shape `whole`
};

/// Groups of ranks that each have a summand of the gradient of the same elements; they are all-reduced before use.
enum class GradientSharers {
  tensor,       ///< the tensor-parallel group
  head_copies,  ///< the ranks of it that have copies of the same key and value heads
  ends          ///< first and last pipeline stage, for an embedding tied to the output layer
};

/// A trainable tensor and its identity. Its memory is bound from outside (FlatParameters); a parameter owns none.
struct Parameter {
  std::string name;  ///< global, the same on every layout: "decoder.layers.0.mlp.linear_fc1.weight"
  ParameterRole role = ParameterRole::matrix;
  Shape global_shape;  ///< of the unsharded tensor
  Init init;
  DType type = DType::float32;  ///< in which the model reads it; a 16-bit value is a rounded copy of the fp32 weight
  TensorCut cut = {};           ///< the part of it that this rank has

  /// A range of elements whose gradient must be summed over a group of ranks.
  struct Shared {
    GradientSharers with;
    ElementRange elements;  ///< of this rank's part
  };
  std::vector<Shared> shared;

  /// Value and main gradient, once bound.
  autograd::Leaf leaf;

  Shape shape() const { return cut.of(global_shape); }          ///< of this rank's part
  std::int64_t elements() const { return shape().elements(); }  ///< of this rank's part
  /// Sum the gradient of all elements over this group.
  void share(GradientSharers with) { shared.push_back({with, {0, elements()}}); }
  /// The ranges of this rank's elements that it owns (see TensorCut).
  std::vector<ElementRange> owned() const;
};

/// A contiguous range of this rank's elements that is a box (hyper-rectangle) of the unsharded tensor.
struct PlacedBox {
  std::vector<std::int64_t> offsets;  ///< of the box in the unsharded tensor, one per dimension
  Shape shape;
  std::int64_t first;  ///< index of its first element on this rank
};
/// Divides a range of this rank's elements of `parameter` into boxes, in ascending order. For checkpoints, which
/// address tensors by boxes. Throws BugError for more than two dimensions.
std::vector<PlacedBox> boxes_of(const Parameter& parameter, ElementRange elements);

/// A range of elements that is contiguous both on this rank and in the unsharded tensor: `first` here, `global_first`
/// there.
struct ContiguousRange {
  std::int64_t first, global_first, count;
};
/// All elements of this rank as such ranges, in ascending order of `first`.
std::vector<ContiguousRange> contiguous_ranges_of(const Parameter& parameter);

}  // namespace tessera::nn
