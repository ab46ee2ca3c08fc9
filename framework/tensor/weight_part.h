#pragma once

#include <string>
#include <vector>

#include "framework/tensor/box.h"
#include "framework/tensor/parameter_role.h"

namespace tessera {

/// The part of a weight that one rank has, or saves, as boxes of the unsharded tensor.
struct WeightPart {
  std::string name;  ///< of the weight, the same on every layout
  ParameterRole role = ParameterRole::matrix;
  Shape global_shape;      ///< of the unsharded tensor
  std::vector<Box> boxes;  ///< in the order of their elements on the rank

  /// The shape of all boxes together, which differ in their rows alone: they are stored one below the other.
  Shape shape() const;
};

}  // namespace tessera
