#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "framework/data/preprocessing/text_file.h"
#include "framework/data/tokenizers/tokenizer.h"

namespace tessera::data {

struct PreprocessRequest {
  std::vector<std::string> inputs;   ///< read in this order: files, also .gz .zst .xz; patterns; "-": standard input
  std::optional<TextFormat> format;  ///< none: by the name of each input
  std::vector<std::string> json_keys = {"text"};
  /// Of JSON lines <output_prefix>_<key>_document.bin and .idx (_sentence with split_sentences), before that of each
  /// partition <output_prefix>_<number>_<key>_document; of plain text <output_prefix>.bin and .idx.
  std::string output_prefix;
  bool append_eod = false;               ///< at the end of each document that has a token
  int workers = 1;                       ///< threads that encode; they do not affect the output
  int partitions = 1;                    ///< parts that the lines are dealt to; joined at the end
  bool keep_sequential_samples = false;  ///< partitions are blocks of lines, so that the order stays
  bool split_sentences = false;          ///< values are lists of sentences
  bool skip_bad = false;                 ///< leave out documents that cannot be encoded, instead of stopping
  bool resume = false;                   ///< continue an interrupted run of the same request
  std::size_t chunk_bytes = std::size_t{256} << 10U;  ///< of input that a thread encodes at a time
  std::int64_t resume_point_bytes = std::int64_t{1}
                                    << 30;  ///< of input from one point where --resume can continue to the next
};

/// How far preprocessing is.
struct PreprocessProgress {
  std::int64_t bytes = 0;      ///< of input, as stored
  std::int64_t all_bytes = 0;  ///< 0: not known in advance
  std::int64_t documents = 0, tokens = 0, skipped = 0;
};

/// What was written for one key.
struct TokenFiles {
  std::string prefix;
  std::int64_t documents = 0, sequences = 0, tokens = 0;
};

struct PreprocessResult {
  std::vector<TokenFiles> files;       ///< of each key; those of partitions are not listed
  PreprocessProgress total;            ///< at the end
  std::vector<std::string> skipped;    ///< the first documents that were left out: file, line, reason
  std::vector<std::string> notes;      ///< what a user should know: other files that are read, where it resumed
  std::int64_t resumed_documents = 0;  ///< of an earlier run
};

/// Text to token files, byte for byte as Megatron-LM's tools/preprocess_data.py with the same arguments, except that
/// with several keys each gets its index. Each document becomes one, also when it has no token; each text of it that
/// has tokens a sequence. Memory does not grow with the input.
///
/// Throws ConfigError, naming file and line, for input that cannot be read; then nothing is left behind and older files
/// of these names stay. Throws IoError if the disk refuses; then what an equal request with `resume` needs is kept, and
/// the message says so.
PreprocessResult preprocess(const Tokenizer& tokenizer, const PreprocessRequest& request,
                            const std::function<void(const PreprocessProgress&)>& progress = {});

}  // namespace tessera::data
