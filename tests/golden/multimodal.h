#pragma once

#include <filesystem>
#include <vector>

#include "tests/golden/case.h"
#include "tests/golden/data_cases.h"

namespace tessera {

/// Whether `folder` has records of MindSpeed-MM's texts: llava.json, encode.json, collate.json, positions.json,
/// tables.json; pictures/ beside them, and the tokenizer in tokenizer/ here or in the folder above.
bool is_multimodal_text(const std::filesystem::path& folder);
std::vector<CaseResult> run_multimodal_text_cases(const std::filesystem::path& folder);

/// Whether `folder` has the orders of MindSpeed-MM's sampler: sampler.jsonl.
bool is_multimodal_order(const std::filesystem::path& folder);
std::vector<CaseResult> run_multimodal_order_cases(const std::filesystem::path& folder);

namespace golden {

void judge_llava(DataFolder& data);
void judge_positions(DataFolder& data);
void judge_tables(DataFolder& data);
void judge_rows(DataFolder& data);
void judge_batches(DataFolder& data);

}  // namespace golden
}  // namespace tessera
