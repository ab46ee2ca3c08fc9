#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "framework/tokenizers/hugging_face/added_tokens.h"
#include "framework/tokenizers/hugging_face/decoder.h"
#include "framework/tokenizers/hugging_face/normalizer.h"
#include "framework/tokenizers/hugging_face/pre_tokenizer.h"
#include "framework/tokenizers/hugging_face/token_model.h"
#include "framework/tokenizers/tokenizer.h"

namespace tessera::tokenizers::hugging_face {

/// Executes one tokenizer.json, as the class Tokenizer of the library `tokenizers` does.
class Engine {
 public:
  /// Parses `content`, that of the file `file`. Throws ConfigError, naming file and entry, if it is not a
  /// tokenizer.json or a part of it is not supported. `add_prefix_space` replaces that field of a pre_tokenizer
  /// ByteLevel.
  Engine(const std::string& file, std::string_view content, std::optional<bool> add_prefix_space = {});

  /// Adds tokens as Tokenizer.add_tokens does: a token that the model or the added tokens already have keeps its id;
  /// others get the next ids.
  void add_tokens(const std::vector<AddedToken>& tokens);
  const std::vector<AddedToken>& added_tokens() const { return added_; }
  void set_clean_up(bool clean_up) { clean_up_ = clean_up; }
  /// Whether special tokens in a text are encoded as ordinary text, `encode_special_tokens` of the library.
  void set_split_special_tokens(bool split);

  std::optional<std::int32_t> find(std::string_view token) const;
  /// Number of tokens, added ones included.
  std::int64_t size() const;
  bool is_bpe() const { return is_bpe_; }
  /// The token in the file's padding section; empty: there is none.
  const std::string& padding_token() const { return padding_token_; }

  /// See Tokenizer. True only if that is known of every step: a text of a million lines is then cut into parts.
  bool may_be_cut_at_lines() const;

  std::unique_ptr<Tokenizer::Encoder> encoder() const;
  std::unique_ptr<Tokenizer::Decoder> decoder() const;
  std::string piece(std::int32_t id) const;

 private:
  friend class EngineEncoder;
  friend class EngineDecoder;
  // Part of a post-processor's template: fixed ids, or the ids of the text.
  struct TemplatePart {
    bool is_text;
    std::vector<std::int32_t> ids;
  };

  void read(const JsonValue& root, std::optional<bool> add_prefix_space);
  void read_added_tokens(const JsonValue& root);
  void read_post_processor(const JsonValue& entry);
  void refresh_finders();
  std::string normalized(std::string_view content) const;
  std::optional<std::string> token(std::int32_t id) const;

  std::string file_;
  Normalizers normalizers_;
  PreTokenizers pre_tokenizers_;
  std::unique_ptr<TokenModel> model_;
  bool is_bpe_ = false, clean_up_ = false, splits_special_tokens_ = false, keeps_ascii_ = true,
       splits_at_metaspace_ = false;
  std::string padding_token_;
  std::vector<AddedToken> added_;
  std::unordered_map<std::string, std::int32_t> by_content_;  // of the added tokens
  std::unordered_map<std::int32_t, std::string> spelt_;       // id -> text of an added token after normalization
  std::unique_ptr<AddedTokenFinder> plain_finder_, normalized_finder_;
  std::vector<std::vector<TemplatePart>> templates_;
  DecodeSteps decoders_;
};

}  // namespace tessera::tokenizers::hugging_face
