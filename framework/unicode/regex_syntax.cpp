#include "framework/unicode/regex_syntax.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "framework/base/error.h"
#include "framework/unicode/characters.h"
#include "framework/unicode/utf8.h"

namespace tessera::unicode {
namespace {

using Kind = RegexNode::Kind;
using Greed = RegexNode::Greed;

constexpr int deepest = 100;
constexpr std::uint32_t most_repeats = 1000;

bool is_ascii_letter(char32_t code) { return (code >= 'a' && code <= 'z') || (code >= 'A' && code <= 'Z'); }

// All characters that are equal to an ASCII letter when case is ignored. U+017F folds to s, U+212A to k.
CodeSet without_case(char32_t code) {
  if (!is_ascii_letter(code)) return CodeSet::of(code);
  const auto lower = code | 0x20U;
  std::vector<CodeSet::Range> all{{lower, lower}, {lower - 32, lower - 32}};
  if (lower == 's') all.push_back({0x17F, 0x17F});
  if (lower == 'k') all.push_back({0x212A, 0x212A});
  return CodeSet(all);
}

struct Flags {
  bool ignore_case = false, dot_takes_newline = false;
};

class Parser {
 public:
  explicit Parser(std::string_view pattern) : pattern_(pattern) {}

  RegexNode parse() {
    auto all = choice({});
    if (!done()) refuse("a ')' without '('");
    return all;
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw ConfigError(text("regular expression '", pattern_, "': at byte ", at_, ": ", what));
  }
  [[noreturn]] void unsupported(const std::string& what) const { refuse(what + " is not supported"); }

  bool done() const { return at_ >= pattern_.size(); }
  bool sees(std::string_view words) const { return pattern_.substr(at_, words.size()) == words; }
  bool take(std::string_view words) {
    if (!sees(words)) return false;
    at_ += words.size();
    return true;
  }
  char32_t character() {
    if (done()) refuse("ends too early");
    const auto step = utf8_step(pattern_, at_);
    if (!step.valid) refuse("is not UTF-8");
    at_ += step.length;
    return step.code;
  }

  RegexNode choice(Flags flags) {
    if (++depth_ > deepest) unsupported("nesting this deep");
    RegexNode all{.kind = Kind::choice, .set = {}, .parts = {}};
    do all.parts.push_back(sequence(flags));
    while (take("|"));
    --depth_;
    return all.parts.size() == 1 ? std::move(all.parts[0]) : all;
  }

  RegexNode sequence(Flags flags) {
    RegexNode all;
    char32_t before = 0;
    while (!done() && !sees("|") && !sees(")")) {
      if (take("(?i)") || take("(?m)") || take("(?mi)") || take("(?im)")) {
        const auto taken = pattern_.substr(0, at_);
        const auto words = taken.substr(taken.rfind('('));
        flags.ignore_case |= words.find('i') != std::string_view::npos;
        flags.dot_takes_newline |= words.find('m') != std::string_view::npos;
        all.parts.push_back(choice(flags));  // the flag holds for all that follows, later alternatives included
        continue;
      }
      const auto begin = at_;
      auto one = quantified(atom(flags));
      if (flags.ignore_case) before = check_folding(begin, before);
      all.parts.push_back(std::move(one));
    }
    return all;
  }

  // Without case, "ss", "ff", "fi", "fl" and "st" are also equal to one character (U+00DF, U+FB00 ...).
  char32_t check_folding(std::size_t begin, char32_t before) const {
    if (at_ != begin + 1 || !is_ascii_letter(static_cast<unsigned char>(pattern_[begin]))) return 0;
    const auto now = static_cast<char32_t>(pattern_[begin]) | 0x20U;
    if ((before == 's' && (now == 's' || now == 't')) || (before == 'f' && (now == 'f' || now == 'i' || now == 'l')))
      unsupported("'ss', 'st', 'ff', 'fi' or 'fl' where case is ignored");
    return now;
  }

  RegexNode quantified(RegexNode node) {
    for (;;) {
      std::uint32_t least = 0, most = RegexNode::unbounded;
      bool interval = false;
      if (take("*")) {
      } else if (take("+")) {
        least = 1;
      } else if (take("?")) {
        most = 1;
      } else if (const auto counts = read_interval()) {
        std::tie(least, most) = *counts;
        interval = true;
      } else {
        return node;
      }
      auto greed = Greed::greedy;
      if (!(interval && least == most) && take("?"))
        greed = Greed::reluctant;  // X{n}? makes X{n} optional
      else if (!interval && take("+"))
        greed = Greed::possessive;  // X{n,m}+ repeats X{n,m}
      RegexNode all{.kind = Kind::repeat, .greed = greed, .least = least, .most = most, .set = {}, .parts = {}};
      all.parts.push_back(std::move(node));
      node = std::move(all);
      if (++repeats_ > 10 * deepest) unsupported("this many quantifiers");
    }
  }

  std::optional<std::uint32_t> number() {
    std::optional<std::uint32_t> all;
    while (!done() && pattern_[at_] >= '0' && pattern_[at_] <= '9') {
      all = all.value_or(0) * 10 + static_cast<std::uint32_t>(pattern_[at_++] - '0');
      if (*all > most_repeats) unsupported(text("a repetition of more than ", most_repeats));
    }
    return all;
  }

  // {n}, {n,}, {,m}, {n,m}; anything else is a literal brace.
  std::optional<std::pair<std::uint32_t, std::uint32_t>> read_interval() {
    const auto begin = at_;
    if (!take("{")) return std::nullopt;
    const auto least = number();
    const bool comma = take(",");
    const auto most = comma ? number() : least;
    if (!take("}") || (!least && !most)) {
      at_ = begin;
      return std::nullopt;
    }
    const std::pair counts{least.value_or(0), most ? *most : RegexNode::unbounded};
    if (counts.first > counts.second) unsupported("an interval whose first number is larger than its second");
    return counts;
  }

  RegexNode single(CodeSet set) const { return {.kind = Kind::set, .set = std::move(set), .parts = {}}; }

  RegexNode atom(Flags flags) {
    if (sees("*") || sees("+") || sees("?")) refuse("a quantifier without a target");
    if (take("(")) return group(flags);
    if (take("[")) return single(char_class(flags));
    if (take("^")) return {.kind = Kind::line_begin, .set = {}, .parts = {}};
    if (take("$")) return {.kind = Kind::line_end, .set = {}, .parts = {}};
    if (take(".")) return single(flags.dot_takes_newline ? ~CodeSet() : ~CodeSet::of('\n'));
    if (take("\\A")) return {.kind = Kind::text_begin, .set = {}, .parts = {}};
    if (take("\\z")) return {.kind = Kind::text_end, .set = {}, .parts = {}};
    if (sees("\\")) return single(escape(flags));
    return single(folded(character(), flags));
  }

  CodeSet folded(char32_t code, Flags flags) const {
    if (flags.ignore_case && code >= 0x80) unsupported("a character outside ASCII where case is ignored");
    return flags.ignore_case ? without_case(code) : CodeSet::of(code);
  }

  RegexNode group(Flags flags) {
    auto kind = Kind::sequence;
    if (take("?")) {
      if (take(":")) {
      } else if (take(">")) {
        kind = Kind::atomic;
      } else if (take("=")) {
        kind = Kind::ahead;
      } else if (take("!")) {
        kind = Kind::not_ahead;
      } else if (take("<=")) {
        kind = Kind::behind;
      } else if (take("<!")) {
        kind = Kind::not_behind;
      } else if (take("<")) {
        while (!take(">")) character();
      } else {
        read_flags(flags);
      }
    }
    auto inside = choice(flags);
    if (!take(")")) refuse("a '(' without ')'");
    if (kind == Kind::sequence) return inside;
    while (inside.kind == Kind::sequence && inside.parts.size() == 1) inside = RegexNode(std::move(inside.parts[0]));
    if ((kind == Kind::behind || kind == Kind::not_behind) && inside.kind != Kind::set)
      unsupported("lookbehind of more than one character");
    RegexNode all{.kind = kind, .set = {}, .parts = {}};
    all.parts.push_back(std::move(inside));
    return all;
  }

  // i, m, -i, ... up to the colon.
  void read_flags(Flags& flags) {
    bool on = true;
    while (!take(":")) {
      if (take("-")) {
        on = false;
      } else if (take("i")) {
        flags.ignore_case = on;
      } else if (take("m")) {
        flags.dot_takes_newline = on;
      } else {
        unsupported(done() ? "this group" : text("the group '(?", pattern_.substr(at_, 1), "'"));
      }
    }
  }

  char32_t hexadecimal(std::size_t digits) {
    char32_t code = 0;
    std::size_t taken = 0;
    for (; taken < digits && !done(); ++taken, ++at_) {
      const auto c = static_cast<unsigned char>(pattern_[at_]);
      const int value = c >= '0' && c <= '9'                     ? c - '0'
                        : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10
                                                                 : -1;
      if (value < 0) break;
      code = code * 16 + static_cast<char32_t>(value);
    }
    if (taken == 0 || code > CodeSet::last_code) refuse("a wrong hexadecimal number");
    return code;
  }

  // What stands after a backslash, as a set; `code` gets the character if it is exactly one.
  CodeSet escape(Flags flags, std::optional<char32_t>* code = nullptr) {
    take("\\");
    const auto letter = character();
    const auto one = [&](char32_t c) {
      if (code != nullptr) *code = c;
      return folded(c, flags);
    };
    switch (letter) {
      case 't':
        return one('\t');
      case 'n':
        return one('\n');
      case 'r':
        return one('\r');
      case 'f':
        return one('\f');
      case 'v':
        return one('\v');
      case 'a':
        return one('\a');
      case 'e':
        return one(0x1B);
      case 'x': {
        if (!take("{")) return one(hexadecimal(2));
        const auto value = hexadecimal(6);
        if (!take("}")) refuse("a '\\x{' without '}'");
        return one(value);
      }
      case 'u':
        return one(hexadecimal(4));
      case 's':
        return white_space();
      case 'S':
        return ~white_space();
      case 'd':
        return property("Nd");
      case 'D':
        return ~property("Nd");
      case 'w':
        return word_characters();
      case 'W':
        return ~word_characters();
      case 'h':
        return CodeSet({{'0', '9'}, {'A', 'F'}, {'a', 'f'}});
      case 'H':
        return ~CodeSet({{'0', '9'}, {'A', 'F'}, {'a', 'f'}});
      case 'p':
        return named(false);
      case 'P':
        return named(true);
      default:
        break;
    }
    if (is_ascii_letter(letter) || (letter >= '0' && letter <= '9')) unsupported("'\\" + to_utf8(letter) + "'");
    return one(letter);
  }

  CodeSet named(bool negated) {
    if (!take("{")) refuse("a '\\p' without '{'");
    if (take("^")) negated = !negated;
    const auto end = pattern_.find('}', at_);
    if (end == std::string_view::npos) refuse("a '\\p{' without '}'");
    auto set = property(pattern_.substr(at_, end - at_));
    at_ = end + 1;
    return negated ? ~set : set;
  }

  CodeSet property(std::string_view name) const {
    if (auto set = named_characters(name)) return *std::move(set);
    unsupported(text("the property '", name, "'"));
  }

  // After '['. The parts between && are united, then intersected.
  CodeSet char_class(Flags flags) {
    if (++depth_ > deepest) unsupported("nesting this deep");
    const bool negated = take("^");
    std::optional<CodeSet> before;
    std::vector<CodeSet::Range> now;
    const auto add = [&now](const CodeSet& set) { now.insert(now.end(), set.ranges().begin(), set.ranges().end()); };
    for (bool first = true; first || !sees("]"); first = false) {
      if (done()) refuse("a '[' without ']'");
      if (sees("[:")) unsupported("a POSIX class");
      if (take("&&")) {
        const CodeSet right(std::exchange(now, {}));
        before = before ? *before & right : right;
      } else if (take("[")) {
        add(char_class(flags));
      } else {
        add(class_range(flags));
      }
    }
    take("]");
    CodeSet all(std::move(now));
    if (before) all = *before & all;
    --depth_;
    return negated ? ~all : all;
  }

  CodeSet class_range(Flags flags) {
    std::optional<char32_t> first;
    auto set = class_item(flags, first);
    if (!first || !sees("-") || sees("-]") || sees("-[") || sees("-&&")) return set;
    take("-");
    std::optional<char32_t> last;
    class_item(flags, last);
    if (!last) unsupported("a range that ends with a class");
    if (*last < *first) refuse("a range whose end is before its beginning");
    if (!flags.ignore_case) return CodeSet({{*first, *last}});
    CodeSet all;
    for (auto code = *first; code <= *last; ++code) all = all | folded(code, flags);
    return all;
  }

  CodeSet class_item(Flags flags, std::optional<char32_t>& code) {
    if (sees("\\")) {
      auto set = escape(flags, &code);
      if (flags.ignore_case && !code) unsupported("a class or property inside '[...]' where case is ignored");
      return set;
    }
    code = character();
    return folded(*code, flags);
  }

  std::string_view pattern_;
  std::size_t at_ = 0;
  int depth_ = 0, repeats_ = 0;
};

}  // namespace

RegexNode parse_regex(std::string_view pattern) { return Parser(pattern).parse(); }

}  // namespace tessera::unicode
