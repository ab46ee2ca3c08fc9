#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "framework/files/text_file.h"
#include "framework/tokenizers/tokenizer.h"

namespace tessera::preprocessing {

struct PreprocessRequest {
  /// Read in this order: files, also .gz .zst .xz; patterns; "-": standard input; pipes.
  std::vector<std::string> inputs;
  std::optional<files::TextFormat> format;  ///< none: determined by the name of each input
  std::vector<std::string> json_keys = {"text"};
  /// Prefix of the output files. For JSON lines: <output_prefix>_<key>_document.bin and .idx (_sentence with
  /// split_sentences); before them, for each partition, <output_prefix>_<number>_<key>_document. For plain text:
  /// <output_prefix>.bin and .idx.
  std::string output_prefix;
  bool append_eod = false;  ///< append the end-of-document token to each document that has tokens
  int workers = 1;          ///< threads that encode; they do not affect the output
  int partitions = 1;       ///< number of partitions over which lines are distributed; they are merged at the end
  bool keep_sequential_samples = false;               ///< partitions are blocks of lines, so that the order is kept
  bool split_sentences = false;                       ///< values are lists of sentences
  bool skip_bad = false;                              ///< skip documents that cannot be encoded, instead of stopping
  bool resume = false;                                ///< continue an interrupted run of the same request
  std::size_t chunk_bytes = std::size_t{256} << 10U;  ///< input bytes that a thread encodes at a time
  /// Input bytes between two points at which --resume can continue.
  std::int64_t resume_point_bytes = std::int64_t{1} << 30;
};

/// Progress of preprocessing.
struct PreprocessProgress {
  std::int64_t bytes = 0;      ///< stored input bytes processed
  std::int64_t all_bytes = 0;  ///< stored input bytes in total; 0: unknown in advance
  std::int64_t documents = 0, tokens = 0, skipped = 0;
};

/// The files written for one key.
struct TokenFiles {
  std::string prefix;
  std::int64_t documents = 0, sequences = 0, tokens = 0;
};

struct PreprocessResult {
  std::vector<TokenFiles> files;       ///< one for each key, without those of partitions
  PreprocessProgress total;            ///< progress at the end
  std::vector<std::string> skipped;    ///< the first skipped documents: file, line, reason
  std::vector<std::string> notes;      ///< notes for the user: other files that were read, where it resumed
  std::int64_t resumed_documents = 0;  ///< documents processed by an earlier run
};

/// Thrown by the `progress` of preprocess() to end it between two chunks; its message says why.
class Interrupted : public Error {
  using Error::Error;
};

/// Converts text to token files, byte for byte as Megatron-LM's tools/preprocess_data.py with the same arguments,
/// except that with several keys each gets its index. Each input document becomes one document, even if it has no
/// tokens; each of its texts that has tokens becomes a sequence. Memory does not grow with the input.
///
/// Throws ConfigError, naming file and line, for input that cannot be read; then no output remains, and older files of
/// these names are unchanged. Throws IoError if writing fails; then the data needed by the same request with `resume`
/// is kept, and the message says so. An Interrupted from `progress` is treated in the same way.
PreprocessResult preprocess(const tokenizers::Tokenizer& tokenizer, const PreprocessRequest& request,
                            const std::function<void(const PreprocessProgress&)>& progress = {});

}  // namespace tessera::preprocessing
