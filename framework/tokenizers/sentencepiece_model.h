#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "framework/tokenizers/tokenizer.h"

namespace tessera::tokenizers {

/// A SentencePiece model (BPE, unigram, word or character; with normalization and byte fallback), executed by Debian's
/// SentencePiece library. Const and thread-safe. Source: Kudo & Richardson, arXiv:1808.06226.
class SentencePieceModel {
 public:
  /// `file`: a .model file, as written by spm_train. Throws ConfigError, naming the file, if it is missing or damaged.
  explicit SentencePieceModel(const std::string& file);
  ~SentencePieceModel();

  /// Number of pieces; their ids are 0 to pieces() - 1.
  std::int32_t pieces() const;
  /// Ids of the special pieces of the model; -1: none.
  std::int32_t pad() const;
  std::int32_t bos() const;
  std::int32_t eos() const;
  std::int32_t unknown() const;

  /// A piece as the vocabulary spells it: U+2581 for a space, "<0x0A>" for a byte. `id` must be a piece.
  std::string spelling(std::int32_t id) const;
  /// The id of the piece with this spelling; nothing if there is none.
  std::optional<std::int32_t> find(const std::string& spelling) const;
  /// Whether a piece is a control piece such as </s>, which has no text.
  bool is_control(std::int32_t id) const;
  /// The byte that a byte-fallback piece represents; nothing for other pieces.
  std::optional<unsigned char> byte(std::int32_t id) const;
  /// The bytes of one piece, with its leading space; the unknown piece gives the model's text for it (" U+2047 ").
  std::string bytes(std::int32_t id) const;

  /// Appends the ids of `text` to `ids`. Bytes that are not UTF-8 are treated as U+FFFD. Throws ConfigError if the
  /// library fails.
  void encode(std::string_view text, std::vector<std::int32_t>& ids) const;
  /// The text of all `ids`. Every id must be a piece.
  std::string decode(std::span<const std::int32_t> ids) const;

  /// A decoder for ids that arrive one by one; its text equals decode() of all of them; an id that is not a piece gives
  /// U+FFFD. Must not outlive the model.
  std::unique_ptr<Tokenizer::Decoder> decoder() const;

 private:
  struct Library;
  class Decoder;
  std::string file_;
  std::unique_ptr<const Library> library_;
  /// A piece whose text is not empty: text decoded after it is not at the beginning.
  std::vector<std::int32_t> anchor_;
  std::string anchor_text_;
  bool rewrites_text_ = false;  // a denormalization rule rewrites the decoded text as a whole
};

}  // namespace tessera::tokenizers
