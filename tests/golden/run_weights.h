#pragma once

#include <filesystem>

#include "tests/golden/comparison.h"
#include "tests/golden/recorded_run.h"

namespace tessera::golden {

/// How near weights must be after some steps, beside what gradients may deviate.
struct WeightTolerance {
  double weights;             ///< of a tensor's largest weight
  double gradients;           ///< of a tensor's largest gradient
  double gradients_absolute;  ///< whatever is largest
};

/// Weights in the checkpoints that the recorded run kept (checkpoint/iter_*, torch and torch_dist; fp32 masters where
/// there are) against those that ours saved after the same iterations; and
/// whole.iter_*.safetensors, the tensors of a torch_dist checkpoint as PyTorch reads them, against ours. Returns how
/// many checkpoints there were.
int compare_weights(const std::filesystem::path& folder, const RecordedRun& ours, const nlohmann::json& trace,
                    const WeightTolerance& tolerance, Comparison& comparison);

}  // namespace tessera::golden
