#pragma once

#include <filesystem>
#include <vector>

#include "tests/golden/case.h"

namespace tessera {

/// Judges a folder of conversations with images that Hugging Face Transformers answered greedily (generation.json,
/// answers.safetensors): one case for each prompt, with its tokens, positions, pixels, logits and answer.
std::vector<CaseResult> run_answer_cases(const std::filesystem::path& folder);

}  // namespace tessera
