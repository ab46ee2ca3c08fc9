#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "framework/options/registry.h"

namespace tessera::tokenizers {

/// Converts text to token ids and back. Const and thread-safe; the working memory of encoding is in an Encoder, of
/// which each thread creates its own.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// Converts texts to ids, with a cache of recent words. Each thread needs its own; must not outlive its tokenizer.
  class Encoder {
   public:
    virtual ~Encoder() = default;
    /// Appends the ids of `text` (UTF-8) to `ids`. Throws ConfigError if the text cannot be encoded.
    virtual void encode(std::string_view text, std::vector<std::int32_t>& ids) = 0;
    /// Encodes a text rendered by a chat template: special tokens in the text become their ids, and none is added at
    /// its ends (Hugging Face: add_special_tokens=False). The default implementation calls encode().
    virtual void encode_rendered(std::string_view text, std::vector<std::int32_t>& ids) { encode(text, ids); }
  };
  virtual std::unique_ptr<Encoder> encoder() const = 0;

  /// Number of token ids; the embedding of a model needs at least as many rows.
  virtual std::int64_t vocab_size() const = 0;
  /// The end-of-document id.
  virtual std::int32_t eod() const = 0;

  /// The properties `pad`, `bos`, ... of Megatron-LM's tokenizer of this type. Null: that tokenizer has no such
  /// property (reading it raises there); -1: it has the property, but the model file has no such token.
  struct SpecialIds {
    std::optional<std::int32_t> pad, bos, eos, cls, sep, mask;
  };
  virtual SpecialIds special_ids() const { return {}; }

  /// A special token under its name in Hugging Face's files: "eos_token", "</s>", 2.
  struct NamedToken {
    std::string name, text;
    std::int32_t id = 0;
  };
  /// The special tokens that a chat template can read (bos_token, eos_token, unk_token, pad_token, ...), as far as this
  /// tokenizer has them.
  virtual std::vector<NamedToken> named_tokens() const { return {}; }
  /// The id of the token with exactly this text; nothing if there is none.
  virtual std::optional<std::int32_t> token_id(std::string_view token) const {
    (void)token;
    return std::nullopt;
  }
  /// Whether encoding reads special tokens in a text as ordinary text: token_id() alone gives their ids then.
  virtual bool splits_special_tokens() const { return false; }
  /// The chat template in the tokenizer's files (tokenizer_config.json, chat_template.jinja); nothing if there is none.
  /// Throws ConfigError, naming the file, if it is damaged, or if there are several and none is named default.
  virtual std::optional<std::string> chat_template() const { return std::nullopt; }

  /// Megatron-LM's `unique_identifiers`: part of the description that determines the names of its index cache files
  /// (docs/data.md).
  struct Identity {
    std::string class_name;  ///< "_GPT2BPETokenizer"
    /// `tokenizer_path`, as given in the recipe; null: None in Megatron-LM.
    std::vector<std::optional<std::string>> paths;
    std::vector<std::pair<std::string, std::string>> options;  ///< further keys in their order, values as text
  };
  virtual Identity identity() const = 0;

  /// The bytes of one token, possibly incomplete characters; U+FFFD for an id that is not a token. In context a token
  /// may have other text (blanks at the beginning of a text); see decode().
  virtual std::string piece(std::int32_t id) const = 0;

  /// Decodes ids that arrive one by one. Each text needs its own; must not outlive its tokenizer.
  class Decoder {
   public:
    virtual ~Decoder() = default;
    /// Adds `id` and returns the text that is now final; may be empty. Never a part of a character.
    virtual std::string push(std::int32_t id) = 0;
    /// Ends the text and returns the rest: empty, or U+FFFD for an incomplete character.
    virtual std::string finish() = 0;
  };
  /// Makes a decoder. The default implementation joins the bytes of `piece` and replaces invalid UTF-8 by U+FFFD, as
  /// Python's errors="replace" does.
  virtual std::unique_ptr<Decoder> decoder() const;

  /// Whether the ids of a text are always those of its parts one after the other, where it is cut behind a line end as
  /// files::cut_long_text() cuts. False for a tokenizer that treats the beginning or the end of a text in its own way.
  virtual bool may_be_cut_at_lines() const { return false; }

  /// The tokenizer's files, each with the option that names it; they are copied into checkpoints.
  struct SourceFile {
    std::string option, path;
  };
  virtual std::vector<SourceFile> files() const { return {}; }

  /// The ids of one text. For many texts, keep an encoder instead.
  std::vector<std::int32_t> encode(std::string_view text) const;
  /// The concatenated bytes of all tokens; for ids from a byte-level `encode`, exactly the bytes of the text.
  virtual std::string bytes(std::span<const std::int32_t> ids) const;
  /// The text of `ids`, decoded by a Decoder.
  std::string decode(std::span<const std::int32_t> ids) const;
};

/// Key `tokenizer_type` of dataset_config. The type `none` makes null, for a run that needs only ids.
using TokenizerRegistry = options::Registry<Tokenizer>;

/// The registry with every built-in tokenizer.
TokenizerRegistry tokenizers();

}  // namespace tessera::tokenizers
