#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "framework/unicode/unicode_classes.h"

namespace tessera::tokenizers {

/// A trained byte-level BPE: the vocabulary in the order of its ids, and the merges, spelt as in GPT-2's files
/// (ByteSpelling).
struct TrainedBpe {
  std::vector<std::string> vocabulary;  ///< 256 bytes, then merged tokens, then <|endoftext|>
  std::vector<std::pair<std::string, std::string>> merges;

  /// Writes vocab.json and merges.txt, which Hugging Face's `tokenizers` can read too. Throws IoError.
  void write(const std::string& vocab_file, const std::string& merge_file) const;
};

/// Learns a byte-level BPE: words are the pieces that GPT-2's expression cuts, and repeatedly the most frequent pair of
/// adjacent tokens becomes a new token; of equally frequent pairs, the one whose tokens are older. So the result
/// depends only on the counts of words, not on the order of texts, and equals that of Hugging Face's BpeTrainer.
class BpeTrainer {
 public:
  BpeTrainer() = default;

  /// Counts the words of a text.
  void add(std::string_view text);
  /// Merges until there are `vocab_size` tokens or no pair occurs `min_frequency` times. `progress` is called with the
  /// numbers of tokens made and requested. Throws ConfigError if `vocab_size` is too small for the 256 bytes and the
  /// end-of-document token.
  TrainedBpe train(std::int64_t vocab_size, std::int64_t min_frequency,
                   const std::function<void(std::int64_t, std::int64_t)>& progress = {}) const;

 private:
  unicode::UnicodeClasses classes_;
  std::unordered_map<std::string, std::int64_t> words_;
};

}  // namespace tessera::tokenizers
