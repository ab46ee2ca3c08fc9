#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "framework/data/tokenizers/hugging_face/json_value.h"
#include "framework/data/tokenizers/hugging_face/vocabulary.h"

namespace tessera::data::hugging_face {

/// The part of tokenizer.json that turns one piece of text into ids. Const and safe to share between threads.
class TokenModel {
 public:
  explicit TokenModel(Vocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {}
  virtual ~TokenModel() = default;

  /// Append the ids of `piece` (UTF-8, not empty) to `ids`. Equal pieces have equal ids, so a caller may remember them.
  /// Throws ConfigError when the piece has a character that the model has no token for, nor an unknown token.
  virtual void encode(std::string_view piece, std::vector<std::int32_t>& ids) const = 0;

  const Vocabulary& vocabulary() const { return vocabulary_; }
  /// A text may be cut before each U+2581 that follows another character without changing its ids.
  virtual bool may_be_cut_at_metaspace() const { return false; }

 private:
  Vocabulary vocabulary_;
};

struct BpeParts {
  Vocabulary vocabulary;
  std::vector<std::pair<std::string_view, std::string_view>> merges;  ///< the earlier the stronger
  std::optional<std::string> unk_token;
  std::string continuing_subword_prefix, end_of_word_suffix;
  bool fuse_unk = false, byte_fallback = false, ignore_merges = false;
  /// The pieces come as plain bytes and are to be read as if pre-tokenizer ByteLevel had spelt them (bpe.h).
  bool from_bytes = false;
};
/// Throws ConfigError, naming the merge, when one of its tokens is not in the vocabulary.
std::unique_ptr<TokenModel> make_bpe(BpeParts parts);

struct UnigramParts {
  Vocabulary vocabulary;
  std::vector<double> scores;  ///< by id
  std::optional<std::int32_t> unk_id;
  bool byte_fallback = false;
};
/// The segmentation of highest total score. Source: Kudo 2018, arXiv:1804.10959.
std::unique_ptr<TokenModel> make_unigram(UnigramParts parts);

struct WordPieceParts {
  Vocabulary vocabulary;
  std::string unk_token, continuing_subword_prefix;
  std::size_t max_input_chars_per_word = 100;
};
/// Longest match from left to right. Source: Devlin et al. 2019, arXiv:1810.04805.
std::unique_ptr<TokenModel> make_word_piece(WordPieceParts parts);

/// A piece is one token, or `unk_token`.
std::unique_ptr<TokenModel> make_word_level(Vocabulary vocabulary, std::string unk_token);

/// What kind of model an entry `model` of tokenizer.json describes: BPE, WordPiece, WordLevel or Unigram. Old files do
/// not say it; then the fields decide. Throws ConfigError for another kind.
std::string model_type(const JsonValue& entry);
/// The entry `model`. `from_bytes`: see BpeParts, only for BPE. Throws ConfigError, naming the field, when it is wrong.
std::unique_ptr<TokenModel> read_model(const JsonValue& entry, bool from_bytes);
/// Whether a BPE model can take plain bytes in the stead of spelt ones.
bool can_take_bytes(const JsonValue& entry);

}  // namespace tessera::data::hugging_face
