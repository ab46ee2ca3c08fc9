#pragma once

#include <vector>

#include "framework/nn/parameter.h"
#include "framework/tensor/weight_part.h"

// The parts of weights that a rank has, derived from the TensorCut of its parameters: for components that know files
// but not modules.

namespace tessera::nn {

/// The parts that a rank with these parameters has, in the order of `parameters`. Several ranks may have the same
/// elements.
std::vector<WeightPart> held_parts(const std::vector<Parameter*>& parameters);

/// The parts that a rank with these parameters owns and saves to checkpoints. Over all ranks of a model, these parts
/// contain every element exactly once. A parameter is left out if the rank owns none of its elements.
std::vector<WeightPart> owned_parts(const std::vector<Parameter*>& parameters);

}  // namespace tessera::nn
