#pragma once

#include <filesystem>
#include <vector>

#include "tests/golden/case.h"

namespace tessera {

/// Judges everything that was recorded of Megatron-LM's data pipeline in `folder`: token ids, preprocessed files,
/// broken input, dataset indices and samples, masks, samplers. Files that the folder lacks are left out. GPT-2's
/// vocabulary is looked for in gpt2/ there, then in data/gpt2/ of every folder above; a lone merge file will do.
std::vector<CaseResult> run_data_cases(const std::filesystem::path& folder);

}  // namespace tessera
