#pragma once

#include <filesystem>
#include <vector>

#include "tests/golden/case.h"

namespace tessera {

/// Whether `folder` is one recorded case of fine-tuning: finetune.json, which names the folder of its base.
bool is_finetune_case(const std::filesystem::path& folder);

/// Repeats one recorded fine-tuning: the first step of the base (logits, losses, gradients of what is trained), all
/// steps, and what was trained in the end; with an adapter also its files. A case whose options the program refuses is
/// not supported.
std::vector<CaseResult> run_finetune_case(const std::filesystem::path& folder);

}  // namespace tessera
