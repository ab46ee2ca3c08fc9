#include "framework/base/visible_text.h"

#include <algorithm>
#include <cstdio>

#include "framework/base/error.h"
#include "framework/base/utf8.h"

namespace tessera {
namespace {

constexpr std::size_t longest_shown = 80, shown_begin = 40, shown_end = 20;  // bytes of a value in a message

bool controls_terminal(char32_t c) {
  const bool control = (c < 0x20 && c != '\n' && c != '\t') || (c >= 0x7f && c < 0xa0);
  return control || (c >= 0x202a && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069);
}

std::string numbered(const char* format, unsigned number) {
  char words[16];
  std::snprintf(words, sizeof words, format, number);
  return words;
}

}  // namespace

bool is_plain_text(std::string_view words) {
  return std::all_of(words.begin(), words.end(),
                     [](unsigned char c) { return (c >= 0x20 && c < 0x7f) || c == '\n' || c == '\t'; });
}

std::string visible(std::string_view words) {
  if (is_plain_text(words)) return std::string(words);
  std::string out;
  while (!words.empty()) {
    const auto c = utf8_step(words, 0);
    const auto bytes = c.valid ? c.length : 1;
    if (!c.valid)
      out += numbered("\\x%02x", static_cast<unsigned char>(words[0]));
    else if (controls_terminal(c.code))
      out += numbered("\\u%04x", static_cast<unsigned>(c.code));
    else
      out += words.substr(0, bytes);
    words.remove_prefix(bytes);
  }
  return out;
}

std::size_t whole_characters(std::string_view words) {
  const std::size_t longest = 4;
  for (std::size_t back = 1; back <= std::min(longest - 1, words.size()); ++back) {
    const auto at = words.size() - back;
    if ((static_cast<unsigned char>(words[at]) & 0xc0U) == 0x80) continue;
    return utf8_step(words, at).truncated ? at : words.size();
  }
  return words.size();
}

std::string shortened(std::string_view words) {
  if (words.size() <= longest_shown) return std::string(words);
  const auto begin = whole_characters(words.substr(0, shown_begin));
  auto end = words.size() - shown_end;
  while (end < words.size() && (static_cast<unsigned char>(words[end]) & 0xc0U) == 0x80) ++end;
  return text(words.substr(0, begin), "...", words.substr(end), " (", words.size(), " bytes)");
}

}  // namespace tessera
