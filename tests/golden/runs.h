#pragma once

#include <filesystem>
#include <vector>

#include "tests/golden/case.h"
#include "tests/golden/programs.h"

namespace tessera {

/// Whether `folder` is one recorded run of Megatron-LM's pretrain_gpt.py.
bool is_training_run(const std::filesystem::path& folder);

/// Repeats one recorded run end to end: from its arguments.json, its initial weights and its data (../../data) to
/// batches, logits, losses, gradients, rates, loss scales, validation losses and weights. Runs of several ranks are
/// started with `programs`.
std::vector<CaseResult> run_training_case(const std::filesystem::path& folder,
                                          const golden::Programs& programs = golden::Programs::built());

/// Whether `folder` holds such runs, with a runs.json about them all.
bool is_training_folder(const std::filesystem::path& folder);
/// Judges each of them.
std::vector<CaseResult> run_training_cases(const std::filesystem::path& folder, const golden::Programs& programs);

}  // namespace tessera
