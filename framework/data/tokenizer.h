#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "framework/options/registry.h"

namespace tessera {

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
  };
  virtual std::unique_ptr<Encoder> encoder() const = 0;

  /// How many ids there are: a model needs at least as many rows.
  virtual std::int64_t vocab_size() const = 0;
  /// The id that ends a document.
  virtual std::int32_t eod() const = 0;
  /// The bytes that one token stands for, not always whole characters; the sign U+FFFD for an id that is no token.
  virtual std::string piece(std::int32_t id) const = 0;

  /// The files it was made of, by the option that names each: a checkpoint takes them along.
  struct SourceFile {
    std::string option, path;
  };
  virtual std::vector<SourceFile> files() const { return {}; }

  /// The ids of one text. For many texts keep an encoder.
  std::vector<std::int32_t> encode(std::string_view text) const;
  /// The bytes of all tokens joined: for ids that came from `encode`, the very bytes of the text.
  virtual std::string bytes(std::span<const std::int32_t> ids) const;
  /// The same as text: what is no UTF-8 becomes U+FFFD, as Python's errors="replace" does it.
  std::string decode(std::span<const std::int32_t> ids) const;
};

/// Text from tokens that come one by one. Bytes of a character that is not complete yet are held back.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}
  /// The text that is certain after `id`; may be empty.
  std::string push(std::int32_t id);
  /// What is left when no more tokens come: nothing, or U+FFFD for an unfinished character.
  std::string finish();

 private:
  const Tokenizer& tokenizer_;
  std::string held_;
};

/// Key `tokenizer_type` of dataset_config. The type `none` makes nullptr: a run on ids alone.
using TokenizerRegistry = Registry<Tokenizer>;

/// The shelf with every built-in tokenizer.
TokenizerRegistry tokenizers();

}  // namespace tessera
