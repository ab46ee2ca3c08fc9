#include "framework/interop/shell/marks.h"

#include <cstdlib>

namespace tessera::shell {

std::string unknown(std::string_view words) {
  std::string out(1, unknown_begin);
  out += without_places(words);
  return out += unknown_end;
}

std::string place_mark(const ScriptPosition& place) {
  return place_begin + std::to_string(place.file) + ":" + std::to_string(place.line) + place_end;
}

bool has_unknown(std::string_view words) { return words.find(unknown_begin) != std::string_view::npos; }

std::string without_places(std::string_view words) {
  std::string out;
  out.reserve(words.size());
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] == place_begin)
      i = end_of_mark(words, i) - 1;
    else
      out += words[i];
  }
  return out;
}

std::string plain(std::string_view words) {
  std::string out = without_places(words);
  std::erase_if(out, [](char c) { return c == unknown_begin || c == unknown_end; });
  return out;
}

ScriptPosition place_of(std::string_view word, const ScriptPosition& otherwise) {
  if (word.empty() || word[0] != place_begin) return otherwise;
  const std::string words(word.substr(1, end_of_mark(word, 0) - 2));
  const auto colon = words.find(':');
  if (colon == std::string::npos) return otherwise;
  return {std::atoi(words.c_str()), std::atoi(words.c_str() + colon + 1)};
}

std::size_t end_of_mark(std::string_view words, std::size_t at) {
  if (words[at] == place_begin) {
    const auto end = words.find(place_end, at);
    return end == std::string_view::npos ? words.size() : end + 1;
  }
  int depth = 0;
  for (auto i = at; i < words.size(); ++i) {
    if (words[i] == unknown_begin) ++depth;
    if (words[i] == unknown_end && --depth == 0) return i + 1;
  }
  return words.size();
}

}  // namespace tessera::shell
