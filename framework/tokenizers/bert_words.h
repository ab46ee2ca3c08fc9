#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tessera::tokenizers {

/// Splits `text` (UTF-8) into words as BERT's BasicTokenizer of Megatron-LM core_v0.12.1 does (Unicode 14): control
/// characters are removed, blanks separate words, each CJK ideograph and each punctuation character is a word; with
/// `lower_case`, words are lower-cased and accents removed. Calls `take` for each word.
void for_each_bert_word(std::string_view text, bool lower_case, const std::function<void(std::string_view)>& take);

/// BERT's vocab.txt: token i is on line i, counted from 0. If a token occurs on two lines, the later line counts, as in
/// a Python dict.
class WordPieces {
 public:
  /// Throws ConfigError if the file is missing, empty or not UTF-8.
  explicit WordPieces(const std::string& vocab_file);

  /// Adds `token` with the id size(), as Python's `vocab[token] = len(vocab)`; does nothing if it exists.
  void add(const std::string& token);
  /// The id of `token`; -1 if there is none.
  std::int32_t find(std::string_view token) const;
  /// The token with `id`; null if there is none. Owned by this object.
  const std::string* token(std::int32_t id) const;
  /// Number of different tokens.
  std::int64_t size() const { return static_cast<std::int64_t>(ids_.size()); }

  /// Appends the ids of one word: repeatedly the longest known piece from the left, where all but the first begin with
  /// "##". Returns false and appends nothing if some part has no piece or the word has more than 200 characters.
  bool encode(std::string_view word, std::vector<std::int32_t>& ids) const;

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view token) const { return std::hash<std::string_view>()(token); }
  };
  std::unordered_map<std::string, std::int32_t, Hash, std::equal_to<>> ids_;
  std::unordered_map<std::int32_t, std::string> tokens_;
  std::size_t longest_ = 0;  // bytes of the longest token
};

/// Joins tokens to text, one token at a time, as Megatron-LM's convert_tokens_to_string does: blanks between tokens
/// except before "##", before punctuation and before "n't" and similar contractions; no blanks at the ends.
class BertTextJoiner {
 public:
  /// Adds a token. Returns the text that later tokens cannot change.
  std::string push(std::string_view token);
  std::string finish();

 private:
  std::string rest_;      // joined, not cleaned
  bool first_ = true;     // no token yet
  bool started_ = false;  // a non-blank character was added
};

}  // namespace tessera::tokenizers
