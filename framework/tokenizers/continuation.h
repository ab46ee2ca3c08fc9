#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "framework/tokenizers/tokenizer.h"

namespace tessera::tokenizers {

/// Decodes tokens that arrive one by one behind a prompt, without the text of the prompt. The first token is not
/// treated as the beginning of a text. A decoder may hold the end of the prompt back until it knows the next token;
/// that text is left out too. Must not outlive the tokenizer.
class Continuation {
 public:
  Continuation(const Tokenizer& tokenizer, std::span<const std::int32_t> prompt);

  /// As Tokenizer::Decoder.
  std::string push(std::int32_t id) { return without_prompt(decoder_->push(id)); }
  std::string finish() { return without_prompt(decoder_->finish()); }

 private:
  std::string without_prompt(std::string said);

  std::unique_ptr<Tokenizer::Decoder> decoder_;
  std::string held_;  // text of the prompt that the decoder has not returned yet
};

}  // namespace tessera::tokenizers
