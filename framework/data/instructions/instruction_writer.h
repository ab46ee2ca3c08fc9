#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "framework/data/preprocessing/preprocess.h"
#include "framework/data/tokenizers/tokenizer.h"

namespace tessera::data {

/// The arguments of MindSpeed-LLM's preprocess_data.py of the same names.
struct InstructionWriteRequest {
  std::vector<std::string> inputs;  ///< files, also .gz .zst .xz, Parquet; patterns; "-": standard input
  std::string output_prefix;        ///< of <output_prefix>_packed_{input_ids,attention_mask,labels}_document
  std::string handler_name, map_keys;
  std::string prompt_type, prompt_type_path;  ///< empty path: a built-in template
  std::optional<std::int64_t> seq_length;     ///< samples of as many tokens, or more, are left out
  bool pack = false;                          ///< several rows in a sample of seq_length tokens
  bool neat_pack = false;                     ///< cut long rows, number the rows of a sample in its attention mask
  bool append_eod = false;
  std::optional<bool> enable_thinking;
  bool skip_bad = false;  ///< leave out rows with an error, instead of stopping
  int workers = 1;        ///< threads that encode; they do not affect the output
};

struct InstructionWriteResult {
  std::int64_t rows = 0, samples = 0, tokens = 0;
  std::int64_t left_out = 0;         ///< rows that MindSpeed-LLM leaves out too
  std::int64_t too_long = 0;         ///< rows that reach seq_length
  PreprocessProgress total;          ///< bytes, documents (rows), tokens; `skipped` are those with an error
  std::vector<std::string> reasons;  ///< of the first rows left out or skipped: file, line, reason
};

/// Instructions to token files, byte for byte as MindSpeed-LLM's preprocess_data.py. Memory does not grow with the
/// input, except with `pack`: 8 bytes for each token, because all rows are sorted by length.
///
/// Throws ConfigError, naming file and line, for a row at which that program stops; if no row is left; if a column is
/// in no row; if the request is not consistent, or the tokenizer lacks a token of the template. Then nothing is left
/// behind, and older files of these names stay.
InstructionWriteResult write_instructions(const Tokenizer& tokenizer, const InstructionWriteRequest& request,
                                          const std::function<void(const PreprocessProgress&)>& progress = {});

}  // namespace tessera::data
