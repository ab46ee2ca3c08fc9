#include "framework/unicode/utf8.h"

namespace tessera::unicode {

std::size_t first_not_utf8(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    if (static_cast<unsigned char>(text[at]) < 0x80) {
      ++at;
      continue;
    }
    const auto step = utf8_step(text, at);
    if (!step.valid) return at;
    at += step.length;
  }
  return std::string_view::npos;
}

std::string with_replacements(std::string_view bytes) {
  std::string held(bytes);
  auto out = take_complete(held);
  if (!held.empty()) out += replacement_character;
  return out;
}

std::string take_complete(std::string& held) {
  std::string out;
  std::size_t at = 0;
  while (at < held.size()) {
    const auto step = utf8_step(held, at);
    if (step.truncated) break;
    if (step.valid)
      out.append(held, at, step.length);
    else
      out += replacement_character;
    at += step.length;
  }
  held.erase(0, at);
  return out;
}

}  // namespace tessera::unicode
