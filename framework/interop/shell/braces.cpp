#include <algorithm>
#include <cctype>
#include <cstdlib>

#include "framework/interop/shell/script_evaluator.h"

// {a,b,c} and {1..8}: one word becomes many.

namespace tessera::shell {
namespace {

constexpr std::size_t most_words = 10000;
constexpr int deepest_braces = 20;

/// A character of a word: part and index.
struct Spot {
  std::size_t part = 0, at = 0;
};

using Parts = std::vector<Part>;

Parts slice(const Parts& parts, const Spot& from, const Spot& to) {
  Parts out;
  for (auto p = from.part; p <= to.part && p < parts.size(); ++p) {
    auto piece = parts[p];
    if (piece.kind == Part::Kind::text) {
      const auto end = p == to.part ? to.at : piece.words.size();
      const auto begin = p == from.part ? from.at : 0;
      piece.words = piece.words.substr(begin, end - begin);
      if (piece.words.empty()) continue;
    } else if (p == to.part) {
      break;
    }
    out.push_back(std::move(piece));
  }
  return out;
}

/// {1..8}, {01..16..5}, {a..e}
std::vector<std::string> range(const std::string& words) {
  const auto dots = words.find("..");
  if (dots == std::string::npos) return {};
  const auto first = words.substr(0, dots);
  auto last = words.substr(dots + 2);
  long step = 1;
  if (const auto more = last.find(".."); more != std::string::npos) {
    step = std::max(1L, std::labs(std::strtol(last.c_str() + more + 2, nullptr, 10)));
    last.resize(more);
  }
  if (first.empty() || last.empty() || first.size() > 10 || last.size() > 10) return {};
  const bool letters = first.size() == 1 && last.size() == 1 &&
                       std::isalpha(static_cast<unsigned char>(first[0])) != 0 &&
                       std::isalpha(static_cast<unsigned char>(last[0])) != 0;
  char *end = nullptr, *other = nullptr;
  const long from = letters ? first[0] : std::strtol(first.c_str(), &end, 10);
  const long to = letters ? last[0] : std::strtol(last.c_str(), &other, 10);
  if (!letters && (*end != 0 || *other != 0)) return {};
  if (static_cast<std::size_t>(std::labs(to - from) / step) > most_words) return {};
  const bool padded = !letters && ((first.size() > 1 && first[0] == '0') || (last.size() > 1 && last[0] == '0'));
  std::vector<std::string> out;
  for (long i = from; from <= to ? i <= to : i >= to; i += from <= to ? step : -step) {
    auto word = letters ? std::string(1, static_cast<char>(i)) : std::to_string(i);
    const auto width = padded ? std::max(first.size(), last.size()) : 0;
    if (word.size() < width) word.insert(word.begin(), width - word.size(), '0');
    out.push_back(word);
  }
  return out;
}

/// What stands between the braces that open at `open`, cut at its commas; empty when they mean themselves.
struct Braces {
  Spot open, close;
  std::vector<Parts> choices;
};

Braces braces_from(const Parts& parts, const Spot& open) {
  Braces out;
  out.open = open;
  int depth = 0;
  bool commas = false;
  Spot begin{open.part, open.at + 1};
  for (auto p = open.part; p < parts.size(); ++p) {
    if (parts[p].kind != Part::Kind::text) continue;
    const auto& words = parts[p].words;
    for (auto i = p == open.part ? open.at + 1 : 0; i < words.size(); ++i) {
      if (words[i] == '{') ++depth;
      if (words[i] == '}' && depth-- == 0) {
        out.close = {p, i};
        out.choices.push_back(slice(parts, begin, out.close));
        if (commas) return out;
        if (p == open.part) {
          const auto inside = words.substr(open.at + 1, i - open.at - 1);
          out.choices.clear();
          for (const auto& word : range(inside))
            out.choices.push_back({{Part::Kind::text, word, nullptr, nullptr, {}}});
          return out;
        }
        return {};
      }
      if (words[i] == ',' && depth == 0) {
        commas = true;
        out.choices.push_back(slice(parts, begin, {p, i}));
        begin = {p, i + 1};
      }
    }
  }
  return {};
}

void expand(const Parts& parts, int depth, std::vector<Parts>& out) {
  for (std::size_t p = 0; p < parts.size() && depth < deepest_braces; ++p) {
    if (parts[p].kind != Part::Kind::text) continue;
    for (auto at = parts[p].words.find('{'); at != std::string::npos; at = parts[p].words.find('{', at + 1)) {
      const auto braces = braces_from(parts, {p, at});
      if (braces.choices.empty()) continue;
      const auto before = slice(parts, {0, 0}, braces.open);
      const auto after = slice(parts, {braces.close.part, braces.close.at + 1}, {parts.size(), 0});
      for (const auto& choice : braces.choices) {
        if (out.size() >= most_words) return;
        auto made = before;
        made.insert(made.end(), choice.begin(), choice.end());
        made.insert(made.end(), after.begin(), after.end());
        expand(made, depth + 1, out);
      }
      return;
    }
  }
  out.push_back(parts);
}

}  // namespace

std::vector<Word> expand_braces(const Word& word) {
  const auto has_brace = [](const Part& part) {
    constexpr std::size_t longest = 2000;  // of a word with braces that mean something
    return part.kind == Part::Kind::text && part.words.size() < longest && part.words.find('{') != std::string::npos;
  };
  if (word.parts.size() > 50 || std::none_of(word.parts.begin(), word.parts.end(), has_brace)) return {word};
  std::vector<Parts> all;
  expand(word.parts, 0, all);
  std::vector<Word> out;
  for (auto& parts : all) out.push_back({std::move(parts), word.line, nullptr});
  return out;
}

}  // namespace tessera::shell
