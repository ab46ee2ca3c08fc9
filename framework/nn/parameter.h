#pragma once

#include <string>

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

/// A trained tensor and its identity. Memory is bound from outside (FlatParameters): a parameter owns none.
struct Parameter {
  std::string name;    ///< canonical and global: "decoder.layers.0.mlp.linear_fc1.weight"
  Shape global_shape;  ///< of the unsplit tensor
  Init init;
  DType type =
      DType::float32;  ///< in which the model reads it: itself, or a copy of the fp32 weight rounded to 16 bits

  Leaf leaf;  ///< value and main gradient, once bound

  std::int64_t elements() const { return global_shape.elements(); }
};

}  // namespace tessera
