#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "framework/preprocessing/preprocess.h"
#include "framework/tokenizers/tokenizer.h"

namespace tessera::instructions {

/// The arguments of MindSpeed-LLM's preprocess_data.py of the same names.
struct InstructionWriteRequest {
  std::vector<std::string> inputs;  ///< files, also .gz .zst .xz, Parquet; patterns; "-": standard input
  /// The files are <output_prefix>_packed_{input_ids,attention_mask,labels}_document; of pairs
  /// <output_prefix>_packed_{chosen,rejected}_{input_ids,labels}_document.
  std::string output_prefix;
  std::string handler_name, map_keys;
  std::string prompt_type, prompt_type_path;  ///< empty path: a built-in template
  std::optional<std::int64_t> seq_length;     ///< samples with this many tokens or more are skipped
  bool pack = false;                          ///< pack several rows into samples of seq_length tokens
  bool neat_pack = false;                     ///< cut long rows, number the rows of a sample in its attention mask
  bool append_eod = false;
  std::optional<bool> enable_thinking;
  bool train_on_prompt = false, mask_history = false;  ///< LLaMA-Factory's; see InstructionEncoding
  std::optional<std::int64_t> max_rows;                ///< read no more rows than these
  bool skip_bad = false;                               ///< skip rows with an error instead of stopping
  int workers = 1;                                     ///< threads that encode; they do not affect the output
};

struct InstructionWriteResult {
  std::int64_t rows = 0, samples = 0, tokens = 0;  ///< a pair is one sample; its two sequences count as tokens
  std::int64_t left_out = 0;                       ///< rows skipped as in MindSpeed-LLM
  std::int64_t too_long = 0;                       ///< rows skipped because they reach seq_length
  std::int64_t cut = 0, cut_to = 0;                ///< rows written that were cut to `cut_to` tokens
  std::string first_cut;                           ///< its file and line
  std::int64_t emptied = 0;                        ///< rows with several answers, of which none is used
  std::string first_emptied;                       ///< its file and line
  std::int64_t without_label = 0;                  ///< samples written from which nothing is learned
  std::int64_t equal_pairs = 0;                    ///< pairs written whose chosen and rejected sequences are equal
  std::string first_equal_pair;                    ///< its file and line
  preprocessing::PreprocessProgress total;         ///< bytes, documents (rows), tokens; `skipped`: rows with an error
  std::vector<std::string> reasons;                ///< the first skipped rows: file, line, reason
};

/// Converts instruction data, or pairs of a chosen and a rejected answer, to token files, byte for byte as
/// MindSpeed-LLM's preprocess_data.py does. Memory does not
/// grow with the input, except with `pack`: 8 bytes per token, because all rows are sorted by length.
///
/// Throws ConfigError, naming file and line, for a row at which that program stops with an error; if no row remains; if
/// a column is in no row; if the request is inconsistent, or the tokenizer lacks a token of the template. After an
/// error no new file exists, and older files of these names are unchanged.
InstructionWriteResult write_instructions(
    const tokenizers::Tokenizer& tokenizer, const InstructionWriteRequest& request,
    const std::function<void(const preprocessing::PreprocessProgress&)>& progress = {});

}  // namespace tessera::instructions
