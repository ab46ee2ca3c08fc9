#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "framework/data/unicode/unicode_classes.h"

namespace tessera::data {

/// A vocabulary in the order of its ids and its merges, spelt as in GPT-2's files.
struct TrainedBpe {
  std::vector<std::string> vocabulary;  ///< 256 bytes, then merged tokens, then <|endoftext|>
  std::vector<std::pair<std::string, std::string>> merges;

  /// As vocab.json and merges.txt, which also Hugging Face's tokenizers read. Throws IoError.
  void write(const std::string& vocab_file, const std::string& merge_file) const;
};

/// Learns a byte-level BPE: words are the pieces that GPT-2's expression cuts, and again and again the most frequent
/// pair of neighbours becomes a token; of equally frequent pairs the one whose tokens came earlier. So the result
/// depends on the text alone, not on its order, and is the one that Hugging Face's BpeTrainer finds.
class BpeTrainer {
 public:
  BpeTrainer() = default;

  /// Count the words of a text.
  void add(std::string_view text);
  /// Merge until there are `vocab_size` tokens or no pair occurs `min_frequency` times. `progress` hears of tokens made
  /// and wanted. Throws ConfigError when `vocab_size` has no room for the 256 bytes and the end of a document.
  TrainedBpe train(std::int64_t vocab_size, std::int64_t min_frequency,
                   const std::function<void(std::int64_t, std::int64_t)>& progress = {}) const;

 private:
  UnicodeClasses classes_;
  std::unordered_map<std::string, std::int64_t> words_;
};

}  // namespace tessera::data
