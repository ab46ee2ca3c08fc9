#include <algorithm>

#include "framework/interop/shell/script_evaluator.h"

// Patterns of file names: * ? [a-z] [!a-z], and \x for x itself. @(a|b) and its relatives are not known.

namespace tessera::shell {
namespace {

/// Whether `c` is in the set that begins at pattern[at] == '['; `at` is moved past it. A set that does not close is a
/// bracket.
bool in_set(const std::string& pattern, std::size_t& at, char c) {
  auto i = at + 1;
  const bool negated = i < pattern.size() && (pattern[i] == '!' || pattern[i] == '^');
  if (negated) ++i;
  bool in = false;
  for (const auto first = i; i < pattern.size(); ++i) {
    if (pattern[i] == ']' && i > first) {
      at = i + 1;
      return in != negated;
    }
    if (pattern.compare(i, 2, "[:") == 0) {
      const auto end = pattern.find(":]", i);
      if (end != std::string::npos) {
        const auto name = pattern.substr(i + 2, end - i - 2);
        const auto u = static_cast<unsigned char>(c);
        in = in || (name == "space" && std::isspace(u) != 0) || (name == "digit" && std::isdigit(u) != 0) ||
             (name == "alpha" && std::isalpha(u) != 0) || (name == "alnum" && std::isalnum(u) != 0) ||
             (name == "upper" && std::isupper(u) != 0) || (name == "lower" && std::islower(u) != 0);
        i = end + 1;
        continue;
      }
    }
    if (i + 2 < pattern.size() && pattern[i + 1] == '-' && pattern[i + 2] != ']') {
      in = in || (pattern[i] <= c && c <= pattern[i + 2]);
      i += 2;
    } else {
      in = in || pattern[i] == c;
    }
  }
  ++at;
  return c == '[';
}

/// Whether the element of `pattern` at `at`, which is not *, matches `c`; `at` is moved past it.
bool fits_one(const std::string& pattern, std::size_t& at, char c) {
  if (pattern[at] == '?') return ++at, true;
  if (pattern[at] == '[') return in_set(pattern, at, c);
  if (pattern[at] == '\\' && at + 1 < pattern.size()) ++at;
  return pattern[at++] == c;
}

}  // namespace

bool fits(const std::string& words, const std::string& pattern) {
  std::size_t w = 0, p = 0, star = std::string::npos, star_at = 0;
  while (w < words.size()) {
    auto next = p;
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      star_at = w;
    } else if (p < pattern.size() && fits_one(pattern, next, words[w])) {
      p = next;
      ++w;
    } else if (star != std::string::npos) {
      p = star + 1;
      w = ++star_at;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

std::size_t fitting_prefix(const std::string& words, const std::string& pattern, bool longest) {
  if (pattern.empty()) return std::string::npos;
  const bool simple = pattern.find_first_of("*?[\\") == std::string::npos;
  if (simple) return words.compare(0, pattern.size(), pattern) == 0 ? pattern.size() : std::string::npos;
  for (std::size_t k = 0; k <= words.size(); ++k) {
    const auto length = longest ? words.size() - k : k;
    if (fits(words.substr(0, length), pattern)) return length;
  }
  return std::string::npos;
}

std::size_t fitting_suffix(const std::string& words, const std::string& pattern, bool longest) {
  if (pattern.empty()) return std::string::npos;
  for (std::size_t k = 0; k <= words.size(); ++k) {
    const auto length = longest ? words.size() - k : k;
    if (fits(words.substr(words.size() - length), pattern)) return length;
  }
  return std::string::npos;
}

}  // namespace tessera::shell
