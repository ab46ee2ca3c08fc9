#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "framework/tokenizers/hugging_face/json_value.h"

namespace tessera::tokenizers::hugging_face {

/// One step of decoding tokens to text, with the state of one text. If an earlier step joins all tokens to one, that
/// token arrives in chunks.
class DecodeStep {
 public:
  virtual ~DecodeStep() = default;
  virtual void token(std::string words) = 0;
  /// The default implementation collects the chunks and passes them to token() at the end.
  virtual void chunk(std::string_view words) { collected_ += words; }
  virtual void finish() { next_->finish(); }
  /// Whether this step outputs a single token, in chunks.
  virtual bool joins() const { return false; }
  /// The output of this step for the bytes of one token alone.
  virtual std::string piece(std::string token) const { return token; }

  void link(DecodeStep& next) {
    next_ = &next;
    next.takes_chunks_ = joins();
  }

 protected:
  DecodeStep& next() { return *next_; }
  bool takes_chunks() const { return takes_chunks_; }
  void flush_chunks() {
    if (takes_chunks_) token(std::exchange(collected_, {}));
  }

 private:
  DecodeStep* next_ = nullptr;
  bool takes_chunks_ = false;
  std::string collected_;
};

/// Factories of the steps of the entry `decoder`; each text needs new steps.
using DecodeSteps = std::vector<std::function<std::unique_ptr<DecodeStep>()>>;

/// Reads the entry `decoder`; if it is null, tokens are joined by blanks. Throws ConfigError, naming the entry, if a
/// type is not supported.
DecodeSteps make_decoders(const std::optional<JsonValue>& entry);

/// The chain of steps for one text.
class DecodeChain {
 public:
  /// With `clean_up`, blanks before punctuation and English contractions are removed from the final text, as
  /// transformers' clean_up_tokenization does.
  DecodeChain(const DecodeSteps& steps, bool clean_up);
  ~DecodeChain();
  void token(std::string words);
  /// The text that has become final since the last call.
  std::string take();
  void finish();
  std::string piece(std::string token) const;

 private:
  class Output;
  std::vector<std::unique_ptr<DecodeStep>> steps_;
  std::unique_ptr<Output> output_;
};

}  // namespace tessera::tokenizers::hugging_face
