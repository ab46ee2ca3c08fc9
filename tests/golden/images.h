#pragma once

#include <filesystem>
#include <vector>

#include "tests/golden/case.h"

namespace tessera::golden {

/// Whether `folder` has recorded pixels: cases.json with `limits`, `files` and `videos`, and a folder files/.
bool is_pixels(const std::filesystem::path& folder);

/// Judges every file and every video of cases.json, each as one case: modes, samples, sizes, levels and scaled values,
/// all by their hashes, equal to the bit; an error where the original has one.
std::vector<CaseResult> run_pixel_cases(const std::filesystem::path& folder);

}  // namespace tessera::golden
