#pragma once

#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "framework/checkpoint/safetensors.h"
#include "tests/golden/comparison.h"
#include "tests/golden/model_of_case.h"

namespace tessera::golden {

/// Compares every recorded tensor with the computed one of its name. Tolerance: eight times the recorded deviation of
/// float32 runs (`floors`, by name), at least 1e-6 of the largest element. A tensor that was not computed or has no
/// floor is a difference, unless it is the gradient of one of `without_gradient`.
void compare_with_floors(const Values& computed, const checkpoint::SafetensorsReader& recorded,
                         const nlohmann::json& floors, const std::set<std::string>& without_gradient,
                         Comparison& comparison);

/// Compares losses, gradient norms and the recorded metrics of all steps, and the loss of the first batch after them if
/// it is recorded. Tolerance: eight times the recorded noise floor, at least 2e-6 of the value.
void compare_curve(const ModelOfCase::Curve& computed, const nlohmann::json& curve, Comparison& comparison);

}  // namespace tessera::golden
