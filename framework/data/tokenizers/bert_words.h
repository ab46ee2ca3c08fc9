#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tessera::data {

/// The words of `text` (UTF-8) as BERT's BasicTokenizer of Megatron-LM core_v0.12.1 cuts them (Unicode 14): controls
/// are removed, blanks separate, each CJK ideograph and each punctuation sign is a word of its own; with `lower_case`
/// words are in lower case without accents. `take` is called once for each word.
void for_each_bert_word(std::string_view text, bool lower_case, const std::function<void(std::string_view)>& take);

/// vocab.txt of BERT: token i stands on line i, counted from 0. Of two equal lines the later counts, as in a Python
/// dict.
class WordPieces {
 public:
  /// Throws ConfigError if the file is missing, empty or not UTF-8.
  explicit WordPieces(const std::string& vocab_file);

  /// As Python's `vocab[token] = len(vocab)`, unless it is there.
  void add(const std::string& token);
  /// The id, or -1.
  std::int32_t find(std::string_view token) const;
  /// The token of `id`, or null.
  const std::string* token(std::int32_t id) const;
  /// Number of different tokens.
  std::int64_t size() const { return static_cast<std::int64_t>(ids_.size()); }

  /// Appends the ids of one word: the longest known piece from the left, "##" in front of all but the first. False, and
  /// nothing is appended, if there is a part without a piece or the word has more than 200 characters.
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

/// Tokens to text, as Megatron-LM's convert_tokens_to_string, one token at a time: blanks between tokens but in front
/// of "##", none in front of punctuation and "n't" and the like, none at the ends.
class BertTextJoiner {
 public:
  /// The text that no later token can change.
  std::string push(std::string_view token);
  std::string finish();

 private:
  std::string rest_;      // joined, not cleaned
  bool first_ = true;     // no token yet
  bool started_ = false;  // a character that is no blank has come
};

}  // namespace tessera::data
