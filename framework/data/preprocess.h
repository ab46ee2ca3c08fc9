#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "framework/data/text_file.h"
#include "framework/data/tokenizer.h"

namespace tessera {

/// Told now and then during long work: bytes of input that are done and that there are.
using Progress = std::function<void(std::int64_t done, std::int64_t all)>;

struct PreprocessRequest {
  std::vector<std::string> inputs;   ///< read in this order
  std::optional<TextFormat> format;  ///< none: by the name of each input
  std::vector<std::string> json_keys = {"text"};
  std::string
      output_prefix;  ///< of JSON lines: <output_prefix>_<key>_document.bin and .idx; of plain text without the key
  bool append_eod = false;        ///< behind each document that has a token
  int workers = 1;                ///< threads; they do not change a byte
  std::int64_t report_every = 0;  ///< documents from one report of progress to the next; 0: as the work is cut
};

/// How far preprocessing is.
struct PreprocessProgress {
  std::int64_t bytes = 0, all_bytes = 0;  ///< of input
  std::int64_t documents = 0;
};

/// What was written for one key.
struct TokenFiles {
  std::string prefix;
  std::int64_t documents = 0, sequences = 0, tokens = 0;
};

/// Text to token files, byte for byte as Megatron-LM's tools/preprocess_data.py with the same arguments, except that
/// with several keys each gets its index. Each document becomes one, also when it has no token; each text of it that
/// has tokens a sequence. Throws ConfigError, naming file and line, for input that cannot be read; then nothing is left
/// behind and older files of these names stay.
std::vector<TokenFiles> preprocess(const Tokenizer& tokenizer, const PreprocessRequest& request,
                                   const std::function<void(const PreprocessProgress&)>& progress = {});

}  // namespace tessera
