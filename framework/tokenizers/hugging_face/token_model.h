#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "framework/tokenizers/hugging_face/json_value.h"
#include "framework/tokenizers/hugging_face/vocabulary.h"

namespace tessera::tokenizers::hugging_face {

/// The model of a tokenizer.json, which encodes one piece of text to ids. Const and thread-safe.
class TokenModel {
 public:
  explicit TokenModel(Vocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {}
  virtual ~TokenModel() = default;

  /// Appends the ids of `piece` (UTF-8, not empty) to `ids`. Equal pieces have equal ids, so callers may cache them.
  /// Throws ConfigError if the piece has a character without a token, and the model has no unknown token.
  virtual void encode(std::string_view piece, std::vector<std::int32_t>& ids) const = 0;

  const Vocabulary& vocabulary() const { return vocabulary_; }
  /// Whether a text may be split before each U+2581 that follows another character without changing its ids.
  virtual bool may_be_cut_at_metaspace() const { return false; }

 private:
  Vocabulary vocabulary_;
};

struct BpeParts {
  Vocabulary vocabulary;
  std::vector<std::pair<std::string_view, std::string_view>> merges;  ///< earlier merges have priority
  std::optional<std::string> unk_token;
  std::string continuing_subword_prefix, end_of_word_suffix;
  bool fuse_unk = false, byte_fallback = false, ignore_merges = false;
  /// The pieces are plain bytes and are read as if pre-tokenizer ByteLevel had spelt them (bpe.h).
  bool from_bytes = false;
};
/// Makes a BPE model. Throws ConfigError, naming the merge, if one of its tokens is not in the vocabulary.
std::unique_ptr<TokenModel> make_bpe(BpeParts parts);

struct UnigramParts {
  Vocabulary vocabulary;
  std::vector<double> scores;  ///< by id
  std::optional<std::int32_t> unk_id;
  bool byte_fallback = false;
};
/// Makes a unigram model: the segmentation with the highest total score. Source: Kudo 2018, arXiv:1804.10959.
std::unique_ptr<TokenModel> make_unigram(UnigramParts parts);

struct WordPieceParts {
  Vocabulary vocabulary;
  std::string unk_token, continuing_subword_prefix;
  std::size_t max_input_chars_per_word = 100;
};
/// Makes a WordPiece model: longest match from left to right. Source: Devlin et al. 2019, arXiv:1810.04805.
std::unique_ptr<TokenModel> make_word_piece(WordPieceParts parts);

/// Makes a WordLevel model: each piece is one token, or `unk_token`.
std::unique_ptr<TokenModel> make_word_level(Vocabulary vocabulary, std::string unk_token);

/// The type of the entry `model` of tokenizer.json: BPE, WordPiece, WordLevel or Unigram. If an old file does not name
/// it, the fields decide. Throws ConfigError for another type.
std::string model_type(const JsonValue& entry);
/// Makes the model of the entry `model`. `from_bytes`: see BpeParts, only for BPE. Throws ConfigError, naming the
/// field, if the entry is invalid.
std::unique_ptr<TokenModel> read_model(const JsonValue& entry, bool from_bytes);
/// Whether the model is a BPE model that can take plain bytes instead of spelt ones.
bool can_take_bytes(const JsonValue& entry);

}  // namespace tessera::tokenizers::hugging_face
