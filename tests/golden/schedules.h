#pragma once

#include <filesystem>
#include <vector>

#include "tests/golden/case.h"

namespace tessera {

/// Judges what was recorded of Megatron-LM's schedules in `folder`: scheduler.jsonl, resume.jsonl, microbatches.jsonl
/// and loss_scale.jsonl, each line a case. Files that the folder lacks are left out. A flag that
/// mappings/flags/megatron.yaml does not know makes a case that is not supported.
std::vector<CaseResult> run_schedule_cases(const std::filesystem::path& folder);

}  // namespace tessera
