#pragma once

#include <string>
#include <vector>

#include "framework/tensor/box.h"
#include "framework/tensor/parameter_role.h"

namespace tessera {

/// The part of a weight that one rank has, or saves to a checkpoint, as boxes of the unsharded tensor.
struct WeightPart {
  std::string name;  ///< name of the weight, the same on every parallel layout
  ParameterRole role = ParameterRole::matrix;
  Shape global_shape;      ///< shape of the unsharded tensor
  std::vector<Box> boxes;  ///< in the order in which the rank stores their elements

  /// Shape of all boxes together. The boxes differ only in their ranges of rows, and are concatenated along the first
  /// dimension. Throws BugError if there are no boxes.
  Shape shape() const;
};

}  // namespace tessera
