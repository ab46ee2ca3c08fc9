#include "framework/base/visible_text.h"

#include <algorithm>
#include <cstdio>

#include "framework/base/error.h"

namespace tessera {
namespace {

constexpr std::size_t longest_shown = 80, shown_begin = 40, shown_end = 20;  // bytes of a value in a message

/// A character at the beginning of a text.
struct Character {
  std::size_t bytes = 1;            ///< that it has, or would have if the text did not end
  char32_t number = 0;              ///< code point, if `valid`
  bool valid = false, cut = false;  ///< cut: valid so far, but the text ends inside
};

/// Bounds as in table 3-7 of the Unicode standard: no surrogates, no overlong forms.
Character first_character(std::string_view words) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(words[i]); };
  const auto lead = byte(0);
  if (lead < 0x80) return {1, lead, true, false};
  const std::size_t bytes = lead < 0xc2 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : lead < 0xf5 ? 4 : 0;
  if (bytes == 0) return {};
  const unsigned low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
  const unsigned high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
  char32_t number = lead & (0xffU >> (bytes + 1));
  for (std::size_t i = 1; i < bytes; ++i) {
    if (i == words.size()) return {bytes, 0, false, true};
    if (byte(i) < (i == 1 ? low : 0x80) || byte(i) > (i == 1 ? high : 0xbf)) return {};
    number = number << 6U | (byte(i) & 0x3fU);
  }
  return {bytes, number, true, false};
}

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
    const auto c = first_character(words);
    const auto bytes = c.valid ? c.bytes : 1;
    if (!c.valid)
      out += numbered("\\x%02x", static_cast<unsigned char>(words[0]));
    else if (controls_terminal(c.number))
      out += numbered("\\u%04x", static_cast<unsigned>(c.number));
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
    return first_character(words.substr(at)).cut ? at : words.size();
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
