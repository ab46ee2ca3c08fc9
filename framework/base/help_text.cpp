#include "framework/base/help_text.h"

#include <algorithm>

namespace tessera {
namespace {

constexpr std::size_t text_column = 30;

/// The columns of UTF-8 text: all but continuation bytes count.
std::size_t columns(std::string_view words) {
  return static_cast<std::size_t>(
      std::count_if(words.begin(), words.end(), [](unsigned char c) { return (c & 0xc0U) != 0x80; }));
}

/// Length of the first piece of `words` that may stand on a line of its own, with blanks before it.
std::size_t piece(std::string_view words) {
  auto at = std::min(words.find_first_not_of(' '), words.size());
  while (at < words.size() && words[at] != ' ')
    if (const auto c = words[at++]; (c == '|' || c == ',' || c == '}') && at < words.size() && words[at] != ' ') break;
  return at;
}

}  // namespace

std::string wrapped(std::string_view words, std::size_t indent, std::size_t used) {
  std::string out;
  while (!words.empty()) {
    auto next = words.substr(0, piece(words));
    words.remove_prefix(next.size());
    const bool begun = used > indent || !out.empty();  // there is something on this line
    if (begun && used + columns(next) > help_width) {
      out += '\n';
      out.append(indent, ' ');
      used = indent;
      next.remove_prefix(std::min(next.find_first_not_of(' '), next.size()));
    }
    out += next;
    used += columns(next);
  }
  return out;
}

std::string help_entry(const std::string& head, std::string_view words) {
  auto out = wrapped(head, 6);
  if (words.empty()) return out + "\n";
  const auto line = out.rfind('\n');
  const auto width = columns(std::string_view(out).substr(line == std::string::npos ? 0 : line + 1));
  const bool below = width + 2 > text_column;
  if (below) out += '\n';
  out.append(below ? text_column : text_column - width, ' ');
  return out + wrapped(words, text_column, text_column) + "\n";
}

}  // namespace tessera
