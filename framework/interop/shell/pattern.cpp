#include <cctype>

#include "framework/interop/shell/matcher.h"
#include "framework/interop/shell/script_evaluator.h"

// Patterns of file names.

namespace tessera::shell {
namespace {

constexpr int deepest_pattern = 50;

class PatternReader {
 public:
  PatternReader(const std::string& words, bool ignore_case) : words_(words), ignore_case_(ignore_case) {}

  Piece all() { return sequence(0); }

 private:
  /// Up to the end, or in parentheses up to | or ).
  Piece sequence(int depth) {
    Piece out;
    while (i_ < words_.size() && (depth == 0 || (words_[i_] != '|' && words_[i_] != ')')))
      out.inside.push_back(next(depth));
    return out;
  }

  Piece next(int depth) {
    const char c = words_[i_];
    if (i_ + 1 < words_.size() && words_[i_ + 1] == '(' && std::string_view("?*+@!").find(c) < 5 &&
        depth < deepest_pattern && closes())
      return group(depth);
    if (c == '*') return ++i_, repeat(any(), 0, -1);
    if (c == '?') return ++i_, any();
    if (c == '[') {
      if (const auto set = read_set(words_, i_, true)) return one(*set);
    } else if (c == '\\' && i_ + 1 < words_.size()) {
      ++i_;
    }
    std::bitset<256> set;
    set.set(static_cast<unsigned char>(words_[i_++]));
    return one(set);
  }

  bool closes() const {
    int open = 0;
    for (auto i = i_ + 1; i < words_.size(); ++i) {
      if (words_[i] == '\\') {
        ++i;
        continue;
      }
      open += (words_[i] == '(') - (words_[i] == ')');
      if (open == 0) return true;
    }
    return false;
  }

  /// @(a|b) and its relatives.
  Piece group(int depth) {
    const char kind = words_[i_];
    i_ += 2;
    Piece choice;
    choice.kind = Piece::Kind::choice;
    for (;; ++i_) {
      choice.inside.push_back(sequence(depth + 1));
      if (words_[i_] == ')') break;
    }
    ++i_;
    if (kind == '@') return choice;
    if (kind != '!') return repeat(std::move(choice), kind == '+' ? 1 : 0, kind == '?' ? 1 : -1);
    Piece out;
    out.kind = Piece::Kind::except;
    out.inside.push_back(std::move(choice));
    return out;
  }

  static Piece any() {
    Piece out;
    out.kind = Piece::Kind::set;
    out.set.set();
    return out;
  }
  static Piece repeat(Piece inside, int least, int most) {
    Piece out;
    out.kind = Piece::Kind::repeat;
    out.inside.push_back(std::move(inside));
    out.least = least;
    out.most = most;
    return out;
  }
  Piece one(const std::bitset<256>& set) const { return one_of(set, ignore_case_); }

  const std::string& words_;
  const bool ignore_case_;
  std::size_t i_ = 0;
};

}  // namespace

Piece read_pattern(const std::string& pattern, bool ignore_case) { return PatternReader(pattern, ignore_case).all(); }

bool fits(const std::string& words, const std::string& pattern, bool ignore_case, const Spend& spend) {
  return match_ends(read_pattern(pattern, ignore_case), words, 0, spend)[words.size()];
}

std::size_t fitting_prefix(const std::string& words, const Piece& pattern, bool longest, const Spend& spend) {
  const auto ends = match_ends(pattern, words, 0, spend);
  for (std::size_t k = 0; k <= words.size(); ++k) {
    const auto length = longest ? words.size() - k : k;
    if (ends[length]) return length;
  }
  return std::string::npos;
}

std::size_t fitting_suffix(const std::string& words, const Piece& pattern, bool longest, const Spend& spend) {
  for (std::size_t k = 0; k <= words.size(); ++k) {
    const auto from = longest ? k : words.size() - k;
    if (match_ends(pattern, words, from, spend)[words.size()]) return words.size() - from;
  }
  return std::string::npos;
}

}  // namespace tessera::shell
