#pragma once

#include <filesystem>

#include "tests/golden/comparison.h"
#include "tests/golden/model_of_case.h"

namespace tessera::golden {

/// Where runs.json beside the folder of a run tells mean, standard deviation and range of its initial weights: ours,
/// drawn from another generator, must be of the same distribution. Numbers that no distribution gave must be equal.
void compare_initialisation(const std::filesystem::path& run, const Values& ours, Comparison& comparison);

}  // namespace tessera::golden
