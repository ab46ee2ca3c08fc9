#pragma once

#include <filesystem>
#include <functional>

#include "tests/golden/comparison.h"
#include "tests/golden/recorded_run.h"

namespace tessera::golden {

/// How near tensors must be.
struct TensorTolerance {
  double relative = 0;  ///< of a tensor's largest element; of its norm where sixteen_bits
  double absolute = 0;  ///< of an element, whatever is largest
  /// Roundings to 16 bits add up like random numbers, so the norm of a deviation is what can be told; an element may be
  /// off by three times that share of the largest.
  bool sixteen_bits = false;
};

/// Every tensor of a recorded file (none: nothing is compared) against ours of the name that `name` makes of it; one
/// that we do not have is wrong. Recorded elements are divided by `factor` first.
void compare_tensors(const Values& ours, const std::filesystem::path& file,
                     const std::function<std::string(const std::string&)>& name, const TensorTolerance& tolerance,
                     double factor, Comparison& comparison);

/// The same against tensors that were put together.
void compare_tensors(const Values& ours, const RecordedTensors& recorded, const TensorTolerance& tolerance,
                     double factor, Comparison& comparison);

/// The factor on the recorded gradients: 1, or the loss scale where they were recorded with it, as their norm tells. 0
/// when they overflowed, and there is nothing to compare.
double gradient_factor(const RecordedTensors& gradients, const nlohmann::json& first_step);

}  // namespace tessera::golden
