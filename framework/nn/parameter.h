#pragma once

#include <optional>
#include <string>
#include <vector>

#include "framework/autograd/tape.h"

namespace tessera {

/// How a parameter begins. Draws are keyed by the parameter's global name and the element's place in the unsplit
/// tensor, so they are the same on every layout.
struct Init {
  enum class Kind { zeros, ones, normal, constant, uniform } kind = Kind::zeros;
  double std = 0;  ///< of normal; the value of constant; uniform draws from [-std, std)
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

/// Which part of an unsplit tensor a process has: strips along one dim, here one after the other in the order given.
/// Several processes may have the same strip; one of them owns it: it speaks for these elements in sums over the model
/// and saves them.
struct TensorCut {
  struct Strip {
    std::int64_t first, count;  ///< along `dim` of the unsplit tensor
    bool owned = true;
  };
  std::size_t dim = 0;
  std::vector<Strip> strips;  ///< none: the whole tensor, owned

  /// The whole of a tensor of `extent` rows that another process owns.
  static TensorCut copy(std::int64_t extent) { return {0, {{0, extent, false}}}; }
  /// Part `index` of `count` equal ones.
  static TensorCut even(std::size_t dim, std::int64_t extent, int index, int count) {
    return {dim, {{extent / count * index, extent / count, true}}};
  }
  std::int64_t extent() const;         ///< of all strips together
  Shape of(const Shape& whole) const;  ///< the shape that is here
};

/// Processes that each hold a part of the gradient of the same elements, to be summed before it is used.
enum class GradientSharers {
  tensor,       ///< all that share each layer
  head_copies,  ///< those of them that have copies of the same key and value heads
  ends          ///< the first and the last stage, for an embedding that is also the head
};

/// A trained tensor and its identity. Memory is bound from outside (FlatParameters): a parameter owns none.
struct Parameter {
  std::string name;    ///< canonical and global: "decoder.layers.0.mlp.linear_fc1.weight"
  Shape global_shape;  ///< of the unsplit tensor
  Init init;
  DType type =
      DType::float32;  ///< in which the model reads it: itself, or a copy of the fp32 weight rounded to 16 bits
  TensorCut cut = {};  ///< what of it is here

  struct Shared {
    GradientSharers with;
    ElementRange elements;  ///< of the part that is here
  };
  std::vector<Shared> shared;

  Leaf leaf;  ///< value and main gradient, once bound

  Shape shape() const { return cut.of(global_shape); }          ///< of what is here
  std::int64_t elements() const { return shape().elements(); }  ///< here
  void share(GradientSharers with) { shared.push_back({with, {0, elements()}}); }
  /// What of the elements here this process speaks for.
  std::vector<ElementRange> owned() const;
};

/// A part of the elements of `parameter` here, [first, first + count), as boxes of the unsplit tensor.
struct PlacedBox {
  std::vector<std::int64_t> offsets;  ///< in the unsplit tensor
  Shape shape;
  std::int64_t first;  ///< element here where it begins; its elements follow one another
};
std::vector<PlacedBox> boxes_of(const Parameter& parameter, ElementRange elements);

/// The index in the unsplit tensor of each element here, as runs of consecutive ones.
struct PlacedRun {
  std::int64_t first, global_first, count;
};
std::vector<PlacedRun> runs_of(const Parameter& parameter);

}  // namespace tessera
