#pragma once

#include <filesystem>
#include <vector>

#include "tests/golden/case.h"

namespace tessera {

/// Judges one tiny model that Hugging Face Transformers saved with the numbers that its weights and batches give:
/// logits, losses, hidden states, gradients, AdamW steps, final weights. Cases: the folder itself, and by name what
/// else it records of the same model (curve_microbatches, curve_bf16, config.transformers4, hf_bfloat16_sharded).
std::vector<CaseResult> run_model_cases(const std::filesystem::path& folder);

}  // namespace tessera
