#pragma once

#include <string>

#include "framework/autograd/tape.h"

namespace tessera {

/// How a parameter begins. Normal draws are keyed by the parameter's global name and the element's place in the unsplit
/// tensor, so they are the same on every layout.
struct Init {
  enum class Kind { zeros, ones, normal } kind = Kind::zeros;
  double std = 0;
  static Init zeros() { return {}; }
  static Init ones() { return {Kind::ones, 0}; }
  static Init normal(double std) { return {Kind::normal, std}; }
};

/// A trained tensor and its identity. Memory is bound from outside (FlatParameters): a parameter owns none.
struct Parameter {
  std::string name;    ///< canonical and global: "decoder.layers.0.mlp.linear_fc1.weight"
  Shape global_shape;  ///< of the unsplit tensor
  Init init;

  Leaf leaf;  ///< value and main gradient, once bound

  std::int64_t elements() const { return global_shape.elements(); }
};

}  // namespace tessera
