#pragma once

#include <filesystem>
#include <vector>

#include "tests/golden/case.h"

namespace tessera {

/// Whether `folder` has arrays that bitsandbytes quantised to NF4: finetune.json with the size of blocks, and
/// tensors.safetensors.
bool is_nf4_blocks(const std::filesystem::path& folder);

/// Quantises each recorded input and unpacks each recorded array: codes, maxima and values must be equal to the bit.
std::vector<CaseResult> run_nf4_blocks(const std::filesystem::path& folder);

}  // namespace tessera
