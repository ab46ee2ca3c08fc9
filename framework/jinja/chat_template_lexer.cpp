#include "framework/jinja/chat_template_lexer.h"

#include <algorithm>
#include <cctype>

#include "framework/jinja/chat_template_value.h"
#include "framework/unicode/utf8.h"

namespace tessera::jinja {
namespace {

/// All line ends as "\n", without one at the end of the text.
std::string with_plain_newlines(std::string_view source) {
  std::string out;
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out += source[i];
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(with_plain_newlines(source)) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) {
      const auto open = next_tag();
      add_data(open);
      if (open == std::string::npos) break;
      const char kind = source_[open + 1];
      advance(open + 2);
      if (const char sign = peek(); sign == '-' || sign == '+') advance(at_ + 1);
      if (kind == '#') {
        skip_comment();
      } else {
        tag(kind == '%');
      }
      line_starting_ = at_ > 0 && source_[at_ - 1] == '\n';
    }
    add(Token::Type::end, line_, "end of the template");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { throw ConfigError(text("line ", line_, ": ", what)); }

  void add(Token::Type type, int line, std::string_view words) {
    auto& token = tokens_.emplace_back();
    token.type = type;
    token.line = line;
    token.text.assign(words.begin(), words.end());
  }

  char peek(std::size_t ahead = 0) const { return at_ + ahead < source_.size() ? source_[at_ + ahead] : '\0'; }
  bool follows(std::string_view word) const { return source_.compare(at_, word.size(), word) == 0; }
  void advance(std::size_t to) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         source_.begin() + static_cast<std::ptrdiff_t>(to), '\n'));
    at_ = to;
  }

  std::size_t next_tag() const {
    for (auto open = source_.find('{', at_); open != std::string::npos; open = source_.find('{', open + 1))
      if (open + 1 < source_.size() && std::string_view("%{#").find(source_[open + 1]) != std::string_view::npos)
        return open;
    return std::string::npos;
  }

  // What precedes the tag at `open`, without the white space that the tag removes.
  void add_data(std::size_t open) {
    const auto end = std::min(open, source_.size());
    std::string data = source_.substr(at_, end - at_);
    const int line = line_;
    if (open != std::string::npos) {
      const char sign = open + 2 < source_.size() ? source_[open + 2] : '\0';
      if (sign == '-') {
        data = strip(data, false, true);
      } else if (sign != '+' && source_[open + 1] != '{') {
        const auto newline = data.rfind('\n');
        const auto from = newline == std::string::npos ? 0 : newline + 1;
        if ((from > 0 || line_starting_) && strip(std::string_view(data).substr(from), true, false).empty())
          data.resize(from);
      }
    }
    advance(end);
    if (!data.empty()) add(Token::Type::data, line, data);
  }

  void skip_space() {
    while (at_ < source_.size()) {
      const auto step = unicode::utf8_step(source_, at_);
      if (!is_python_space(step.code)) return;
      advance(at_ + step.length);
    }
  }

  // After the end of a block or comment; `sign` is the character before it.
  void trim_after(char sign) {
    if (sign == '-') {
      skip_space();
    } else if (sign != '+' && peek() == '\n') {
      advance(at_ + 1);
    }
  }

  void skip_comment() {
    const auto close = source_.find("#}", at_);
    if (close == std::string::npos) fail("a comment {# does not end");
    const char sign = close > at_ ? source_[close - 1] : '\0';
    advance(close + 2);
    trim_after(sign);
  }

  void tag(bool block) {
    add(block ? Token::Type::block_begin : Token::Type::variable_begin, line_, block ? "{%" : "{{");
    std::string brackets;
    for (auto first = tokens_.size(); true;) {
      if (block && tokens_.size() == first + 1 && tokens_[first].text == "raw") fail("the tag raw is not supported");
      skip_space();
      if (at_ >= source_.size()) fail(text("a tag ", block ? "{%" : "{{", " does not end"));
      if (brackets.empty() && ends_tag(block)) return;
      one(brackets);
    }
  }

  bool ends_tag(bool block) {
    const std::string_view end = block ? "%}" : "}}";
    char sign = '\0';
    if (peek() == '-' || (block && peek() == '+')) {
      if (source_.compare(at_ + 1, end.size(), end) != 0) return false;
      sign = peek();
    } else if (!follows(end)) {
      return false;
    }
    add(block ? Token::Type::block_end : Token::Type::variable_end, line_, end);
    advance(at_ + end.size() + (sign != '\0' ? 1 : 0));
    if (block) {
      trim_after(sign);
    } else if (sign == '-') {
      skip_space();
    }
    return true;
  }

  void one(std::string& brackets) {
    const char c = peek();
    if (is_digit(c)) {
      number();
    } else if (is_word(c)) {
      const auto begin = at_;
      auto end = at_;
      while (end < source_.size() && is_word(source_[end])) ++end;
      if (end < source_.size() && static_cast<unsigned char>(source_[end]) >= 0x80)
        fail("names beyond ASCII are not supported");
      add(Token::Type::name, line_, source_.substr(begin, end - begin));
      advance(end);
    } else if (c == '\'' || c == '"') {
      string(c);
    } else {
      sign(brackets);
    }
  }

  void number() {
    std::string digits;
    auto end = at_;
    const auto whole = [&] {
      while (end < source_.size() && (is_digit(source_[end]) || (source_[end] == '_' && end + 1 < source_.size() &&
                                                                 is_digit(source_[end + 1])))) {
        if (source_[end] != '_') digits += source_[end];
        ++end;
      }
    };
    whole();
    bool real = false;
    const auto digit_at = [&](std::size_t i) { return i < source_.size() && is_digit(source_[i]); };
    const bool after_dot = at_ > 0 && source_[at_ - 1] == '.';
    if (!after_dot && end < source_.size() && source_[end] == '.' && digit_at(end + 1)) {
      real = true;
      digits += source_[end++];
      whole();
    }
    if (!after_dot && end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
      const auto sign = end + 1 < source_.size() && (source_[end + 1] == '+' || source_[end + 1] == '-') ? 1U : 0U;
      if (digit_at(end + 1 + sign)) {
        real = true;
        digits += source_.substr(end, 1 + sign);
        end += 1 + sign;
        whole();
      }
    }
    if (end < source_.size() && is_word(source_[end])) fail("numbers other than decimal ones are not supported");
    if (!real && digits.size() > 1 && digits[0] == '0' && digits.find_first_not_of('0') != std::string::npos)
      fail("a number with a leading 0 is not supported");
    add(real ? Token::Type::real : Token::Type::integer, line_, digits);
    advance(end);
  }

  void string(char quote) {
    const int line = line_;
    std::string value;
    auto at = at_ + 1;
    while (at < source_.size() && source_[at] != quote) {
      if (source_[at] != '\\') {
        value += source_[at++];
        continue;
      }
      if (at + 1 >= source_.size()) break;
      at = escape(at + 1, value);
    }
    if (at >= source_.size()) fail(text("a string that begins with ", quote, " does not end"));
    advance(at + 1);
    add(Token::Type::string, line, value);
  }

  // One escape whose character behind the backslash is at `at`; returns where it ends.
  std::size_t escape(std::size_t at, std::string& value) const {
    const char c = source_[at];
    static const std::string_view letters = "abfnrtv\\'\"", meanings = "\a\b\f\n\r\t\v\\'\"";
    if (const auto which = letters.find(c); which != std::string_view::npos) {
      value += meanings[which];
      return at + 1;
    }
    if (c == '\n') return at + 1;
    if (c == 'x' || c == 'u' || c == 'U') return code_point(at + 1, c == 'x' ? 2 : c == 'u' ? 4 : 8, 16, value);
    if (c >= '0' && c <= '7') {
      std::size_t count = 1;
      while (count < 3 && at + count < source_.size() && source_[at + count] >= '0' && source_[at + count] <= '7')
        ++count;
      return code_point(at, count, 8, value);
    }
    if (c == 'N') fail("the escape \\N in a string is not supported");
    value += '\\';  // Python keeps the backslash of an escape that it does not know
    return at;
  }

  std::size_t code_point(std::size_t at, std::size_t count, int base, std::string& value) const {
    const auto digits = source_.substr(at, count);
    if (digits.size() != count ||
        !std::all_of(digits.begin(), digits.end(), [](unsigned char d) { return std::isxdigit(d) != 0; }))
      fail("an escape in a string is not complete");
    const auto code = std::stoul(digits, nullptr, base);
    if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000))
      fail(text("the escape for code point ", code, " in a string is not a character"));
    value += unicode::to_utf8(static_cast<char32_t>(code));
    return at + count;
  }

  void sign(std::string& brackets) {
    for (const std::string_view two : {"==", "!=", "<=", ">=", "//", "**"})
      if (follows(two)) return add_sign(two);
    const char c = peek();
    static const std::string_view open = "([{", close = ")]}";
    if (open.find(c) != std::string_view::npos) {
      brackets += close[open.find(c)];
    } else if (close.find(c) != std::string_view::npos) {
      if (brackets.empty() || brackets.back() != c) fail(text("unexpected ", c));
      brackets.pop_back();
    } else if (std::string_view("+-*/%~<>=.,:|;").find(c) == std::string_view::npos) {
      fail(text("unexpected character ", source_.substr(at_, unicode::utf8_step(source_, at_).length)));
    }
    add_sign(std::string_view(source_).substr(at_, 1));
  }

  void add_sign(std::string_view text) {
    add(Token::Type::sign, line_, text);
    advance(at_ + text.size());
  }

  std::string source_;
  std::size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> template_tokens(std::string_view source) { return Lexer(source).run(); }

}  // namespace tessera::jinja
