#pragma once

#include <vector>

#include "framework/nn/parameter.h"
#include "framework/tensor/weight_part.h"

// The parts of weights that a rank has, by the TensorCut of its parameters, for those who know files but no modules.

namespace tessera::nn {

/// The parts that a rank with these parameters has, in their order. Several ranks may have the same elements.
std::vector<WeightPart> held_parts(const std::vector<Parameter*>& parameters);

/// The parts that it owns, and so saves: over all ranks of a model they are every element exactly once. Parameters of
/// which it owns nothing are left out.
std::vector<WeightPart> owned_parts(const std::vector<Parameter*>& parameters);

}  // namespace tessera::nn
