#include "framework/data/tokenizer.h"

#include "framework/data/utf8.h"

namespace tessera {

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

std::string Tokenizer::decode(std::span<const std::int32_t> ids) const { return with_replacements(bytes(ids)); }

std::string StreamDecoder::push(std::int32_t id) {
  held_ += tokenizer_.piece(id);
  return take_complete(held_);
}

std::string StreamDecoder::finish() {
  auto rest = with_replacements(held_);
  held_.clear();
  return rest;
}

}  // namespace tessera
