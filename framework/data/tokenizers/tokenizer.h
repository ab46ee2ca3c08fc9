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

namespace tessera::data {

/// Text to token ids and back. Const and safe to share between threads; the working memory of encoding is in an
/// Encoder, of which each thread makes its own.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// Turns texts into ids and remembers words it has met. One for each thread; must not outlive its tokenizer.
  class Encoder {
   public:
    virtual ~Encoder() = default;
    /// Append the ids of `text` (UTF-8) to `ids`. Throws ConfigError when the text has no ids.
    virtual void encode(std::string_view text, std::vector<std::int32_t>& ids) = 0;
    /// The same for a text that a chat template rendered: special tokens that stand in the text become their ids, and
    /// none is added at its ends (Hugging Face: add_special_tokens=False). As is: encode().
    virtual void encode_rendered(std::string_view text, std::vector<std::int32_t>& ids) { encode(text, ids); }
  };
  virtual std::unique_ptr<Encoder> encoder() const = 0;

  /// Number of token ids: a model needs at least as many rows of embedding.
  virtual std::int64_t vocab_size() const = 0;
  /// The id that ends a document.
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
  /// All that this tokenizer has of bos_token, eos_token, unk_token, pad_token, ...: what a chat template can read.
  virtual std::vector<NamedToken> named_tokens() const { return {}; }
  /// The id of the token that is exactly `token`; null: there is none.
  virtual std::optional<std::int32_t> token_id(std::string_view token) const {
    (void)token;
    return std::nullopt;
  }
  /// The chat template that came with the tokenizer's files (tokenizer_config.json, chat_template.jinja); null: none.
  /// Throws ConfigError, naming the file, if they have one that is damaged, or several and none named default.
  virtual std::optional<std::string> chat_template() const { return std::nullopt; }

  /// Megatron-LM's `unique_identifiers`: part of the description from which the names of its index cache files follow
  /// (docs/data.md).
  struct Identity {
    std::string class_name;                         ///< "_GPT2BPETokenizer"
    std::vector<std::optional<std::string>> paths;  ///< `tokenizer_path`, as given in the recipe; null: None there
    std::vector<std::pair<std::string, std::string>> options;  ///< further keys in their order, values as text
  };
  virtual Identity identity() const = 0;

  /// The bytes of one token, not always whole characters; U+FFFD for an id that is not a token. What a token stands for
  /// between others may differ (blanks at the beginning of a text): see decode().
  virtual std::string piece(std::int32_t id) const = 0;

  /// Text from ids that come one by one. One for each text; must not outlive its tokenizer.
  class Decoder {
   public:
    virtual ~Decoder() = default;
    /// The text that is certain after `id`; may be empty. Never a part of a character.
    virtual std::string push(std::int32_t id) = 0;
    /// What is left when no more ids come: nothing, or U+FFFD for an unfinished character.
    virtual std::string finish() = 0;
  };
  /// As is: joins the bytes of `piece` and replaces what is not UTF-8 by U+FFFD, as Python's errors="replace".
  virtual std::unique_ptr<Decoder> decoder() const;

  /// The files it was made of, by the option that names each: a checkpoint takes them along.
  struct SourceFile {
    std::string option, path;
  };
  virtual std::vector<SourceFile> files() const { return {}; }

  /// The ids of one text. For many texts keep an encoder.
  std::vector<std::int32_t> encode(std::string_view text) const;
  /// The bytes of all tokens joined: for ids that came from a byte-level `encode`, the very bytes of the text.
  virtual std::string bytes(std::span<const std::int32_t> ids) const;
  /// The text of `ids`, as a decoder gives it.
  std::string decode(std::span<const std::int32_t> ids) const;
};

/// Key `tokenizer_type` of dataset_config. The type `none` makes nullptr: a run on ids alone.
using TokenizerRegistry = options::Registry<Tokenizer>;

/// The registry with every built-in tokenizer.
TokenizerRegistry tokenizers();

}  // namespace tessera::data
