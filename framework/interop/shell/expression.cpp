#include <cctype>

#include "framework/base/error.h"
#include "framework/interop/shell/matcher.h"

// Extended regular expressions of POSIX, as [[ X =~ expression ]] takes them.

namespace tessera::shell {
namespace {

constexpr int deepest_expression = 50, most_repeats = 255;

class ExpressionReader {
 public:
  ExpressionReader(const std::string& words, bool ignore_case) : words_(words), ignore_case_(ignore_case) {}

  Expression all() {
    Expression out;
    out.piece = choice(0);
    if (i_ < words_.size()) fail("')' has no '('");
    out.groups = groups_;
    return out;
  }

 private:
  [[noreturn]] void fail(const std::string& why) const {
    throw ConfigError(text("the regular expression ", words_, " is not understood: ", why));
  }
  bool ahead(char c) const { return i_ < words_.size() && words_[i_] == c; }

  Piece choice(int depth) {
    if (depth > deepest_expression) fail("more than 50 levels of parentheses");
    Piece out;
    out.kind = Piece::Kind::choice;
    out.inside.push_back(sequence(depth));
    while (ahead('|')) {
      ++i_;
      out.inside.push_back(sequence(depth));
    }
    return out.inside.size() == 1 ? Piece(out.inside[0]) : out;
  }

  Piece sequence(int depth) {
    Piece out;
    while (i_ < words_.size() && !ahead('|') && !(ahead(')') && depth > 0)) {
      if (ahead(')')) fail("')' has no '('");
      out.inside.push_back(repeated(atom(depth)));
    }
    return out;
  }

  Piece atom(int depth) {
    const char c = words_[i_];
    if (std::string_view("*+?{").find(c) < 4) fail(text("nothing is before '", c, "'"));
    if (c == '^' || c == '$') return ++i_, anchor(c);
    if (c == '(') return group(depth);
    if (c == '.') return ++i_, one(std::bitset<256>().set());
    if (c == '[') {
      const auto set = read_set(words_, i_, false);
      if (!set) fail("'[' is not closed");
      return one(*set);
    }
    if (c == '\\') {
      if (++i_ >= words_.size()) fail("it ends with a backslash");
      if (std::isalnum(static_cast<unsigned char>(words_[i_])) != 0 || words_[i_] == '<' || words_[i_] == '>')
        fail(text("\\", words_[i_], " is not in POSIX"));
    }
    std::bitset<256> set;
    set.set(static_cast<unsigned char>(words_[i_++]));
    return one(set);
  }

  static Piece anchor(char c) {
    Piece out;
    out.kind = c == '^' ? Piece::Kind::begin : Piece::Kind::end;
    return out;
  }

  Piece group(int depth) {
    ++i_;
    const int number = ++groups_;
    Piece out;
    out.inside.push_back(choice(depth + 1));
    if (!ahead(')')) fail("'(' is not closed");
    ++i_;
    out.group = number;
    return out;
  }

  Piece repeated(Piece piece) {
    while (i_ < words_.size() && std::string_view("*+?{").find(words_[i_]) < 4) {
      if (piece.kind == Piece::Kind::begin) fail("nothing is before the repetition");
      Piece out;
      out.kind = Piece::Kind::repeat;
      out.inside.push_back(std::move(piece));
      out.least = ahead('+') ? 1 : 0;
      out.most = ahead('?') ? 1 : -1;
      if (words_[i_++] == '{') bounds(out);
      piece = std::move(out);
    }
    return piece;
  }

  /// {2}, {2,}, {2,3}, {,3}
  void bounds(Piece& out) {
    const auto number = [this](int otherwise) {
      if (i_ >= words_.size() || std::isdigit(static_cast<unsigned char>(words_[i_])) == 0) return otherwise;
      int value = 0;
      for (; i_ < words_.size() && std::isdigit(static_cast<unsigned char>(words_[i_])) != 0; ++i_)
        value = std::min(value * 10 + (words_[i_] - '0'), most_repeats + 1);
      if (value > most_repeats) fail("more than 255 repetitions");
      return value;
    };
    out.least = number(-1);
    out.most = ahead(',') ? (++i_, number(-1)) : out.least;
    if (!ahead('}') || (out.least < 0 && out.most < 0)) fail("'{' is not followed by numbers and '}'");
    out.least = std::max(out.least, 0);
    if (out.most >= 0 && out.most < out.least) fail("the larger number comes first");
    ++i_;
  }

  Piece one(const std::bitset<256>& set) const { return one_of(set, ignore_case_); }

  const std::string& words_;
  const bool ignore_case_;
  std::size_t i_ = 0;
  int groups_ = 0;
};

}  // namespace

Expression read_expression(const std::string& expression, bool ignore_case) {
  return ExpressionReader(expression, ignore_case).all();
}

}  // namespace tessera::shell
