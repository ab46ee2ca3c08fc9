#include "framework/tokenizers/tokenizer.h"

#include "framework/unicode/utf8.h"

namespace tessera::tokenizers {

std::vector<std::int32_t> Tokenizer::encode(std::string_view text) const {
  std::vector<std::int32_t> ids;
  encoder()->encode(text, ids);
  return ids;
}

std::string Tokenizer::bytes(std::span<const std::int32_t> ids) const {
  std::string all;
  for (const auto id : ids) all += piece(id);
  return all;
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids) const {
  const auto decoder = this->decoder();
  std::string text;
  for (const auto id : ids) text += decoder->push(id);
  return text + decoder->finish();
}

namespace {

class PieceDecoder final : public Tokenizer::Decoder {
 public:
  explicit PieceDecoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  std::string push(std::int32_t id) override {
    held_ += tokenizer_.piece(id);
    return unicode::take_complete(held_);
  }

  std::string finish() override {
    auto rest = unicode::with_replacements(held_);
    held_.clear();
    return rest;
  }

 private:
  const Tokenizer& tokenizer_;
  std::string held_;
};

}  // namespace

std::unique_ptr<Tokenizer::Decoder> Tokenizer::decoder() const { return std::make_unique<PieceDecoder>(*this); }

}  // namespace tessera::tokenizers
