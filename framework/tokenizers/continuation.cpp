#include "framework/tokenizers/continuation.h"

#include <algorithm>

namespace tessera::tokenizers {

Continuation::Continuation(const Tokenizer& tokenizer, std::span<const std::int32_t> prompt)
    : decoder_(tokenizer.decoder()) {
  const auto whole = tokenizer.decoder();
  for (const auto id : prompt) {
    (void)decoder_->push(id);
    (void)whole->push(id);
  }
  held_ = whole->finish();
}

// The end of the prompt may have other text once a token follows (a blank, the rest of a character): only what both
// have in common is left out, in whole characters.
std::string Continuation::without_prompt(std::string said) {
  if (held_.empty() || said.empty()) return said;
  const auto differs = std::mismatch(said.begin(), said.end(), held_.begin(), held_.end());
  auto common = static_cast<std::size_t>(differs.first - said.begin());
  const auto is_inside_a_character = [&] {
    return common < said.size() && (static_cast<unsigned char>(said[common]) & 0xC0U) == 0x80U;
  };
  if (common < said.size()) {
    while (common > 0 && is_inside_a_character()) --common;
    held_.clear();
  } else {
    held_.erase(0, common);
  }
  return said.substr(common);
}

}  // namespace tessera::tokenizers
