#pragma once

#include <filesystem>
#include <vector>

#include "tests/golden/case.h"

namespace tessera {

/// Whether `folder` has checkpoints of MindSpeed-MM's mm-convert: index.json with `hf_to_mm`, and the folders of
/// Transformers that they were made of.
bool is_mm_checkpoints(const std::filesystem::path& folder);

/// Repeats every recorded command. hf_to_mm: names, shapes, types and bytes of every tensor of every file are equal,
/// and those of the releases that the index compares with; mm_to_hf of the recorded folder gives the files of
/// Transformers byte for byte; resplit gives what hf_to_mm gives, also where the original loses tensors; layouts that
/// are none are refused, except flat lists, which are read.
std::vector<CaseResult> run_mm_checkpoint_cases(const std::filesystem::path& folder);

}  // namespace tessera
