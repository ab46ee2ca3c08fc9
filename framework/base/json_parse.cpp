#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "framework/base/json.h"
#include "framework/base/utf8.h"

namespace tessera {
namespace {

constexpr int most_levels = 200;  // copying or writing a deeper value could overflow the stack

bool ends_plain_part(unsigned char c) { return c == '"' || c == '\\' || c < 0x20 || c >= 0x80; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

class JsonParser {
 public:
  explicit JsonParser(std::string_view words) : words_(words), at_(words.data()), end_(words.data() + words.size()) {}

  Json whole() {
    constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";
    if (words_.substr(0, byte_order_mark.size()) == byte_order_mark) at_ += byte_order_mark.size();
    Json json;
    read_value(json);
    skip_blanks();
    if (at_ != end_) refuse("the end of the text");
    return json;
  }

 private:
  [[noreturn]] void refuse(std::string_view expected) const {
    const auto before = words_.substr(0, static_cast<std::size_t>(at_ - words_.data()));
    const auto line = 1 + std::count(before.begin(), before.end(), '\n');
    const auto column = before.size() - (before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1) + 1;
    throw JsonError(text("line ", line, ", column ", column, ": ",
                         at_ == end_ ? "the text ends" : std::string_view("other text stands"), " where ", expected,
                         " was expected"));
  }

  void skip_blanks() {
    while (at_ != end_ && (*at_ == ' ' || *at_ == '\n' || *at_ == '\r' || *at_ == '\t')) ++at_;
  }
  char next() const { return at_ == end_ ? '\0' : *at_; }
  bool take(char sign) {
    skip_blanks();
    if (next() != sign) return false;
    ++at_;
    return true;
  }

  void read_value(Json& into) {
    skip_blanks();
    switch (next()) {
      case '{':
        return read_object(into);
      case '[':
        return read_array(into);
      case '"':
        into = Json(read_string());
        return;
      case 't':
        return read_word("true", Json(true), into);
      case 'f':
        return read_word("false", Json(false), into);
      case 'n':
        return read_word("null", Json(), into);
      default:
        into = read_number();
    }
  }

  void read_word(std::string_view word, Json value, Json& into) {
    if (static_cast<std::size_t>(end_ - at_) < word.size() || std::memcmp(at_, word.data(), word.size()) != 0)
      refuse("a value");
    at_ += word.size();
    into = std::move(value);
  }

  void enter() {
    if (++level_ > most_levels) refuse(text("at most ", most_levels, " levels of brackets"));
    ++at_;
  }

  void read_object(Json& into) {
    enter();
    into = Json::object();
    for (bool first = true; !take('}'); first = false) {
      if (!first && !take(',')) refuse("',' or '}'");
      skip_blanks();
      if (next() != '"') refuse("a name in quotes");
      auto& value = into.member_named(read_string());
      if (!take(':')) refuse("':'");
      read_value(value);
    }
    --level_;
  }

  void read_array(Json& into) {
    enter();
    into = Json::array();
    for (bool first = true; !take(']'); first = false) {
      if (!first && !take(',')) refuse("',' or ']'");
      read_value(into.push_back({}));
    }
    --level_;
  }

  std::string read_string() {
    std::string out;
    ++at_;
    for (;;) {
      const auto* begin = at_;
      while (at_ != end_ && !ends_plain_part(static_cast<unsigned char>(*at_))) ++at_;
      out.append(begin, at_);
      if (at_ == end_) refuse("'\"'");
      if (*at_ == '"') break;
      if (*at_ == '\\')
        read_escape(out);
      else
        read_character(out);
    }
    ++at_;
    return out;
  }

  void read_character(std::string& out) {
    if (static_cast<unsigned char>(*at_) < 0x20) refuse("an escape instead of a control character");
    const auto step = utf8_step({at_, static_cast<std::size_t>(end_ - at_)}, 0);
    if (!step.valid) refuse("UTF-8");
    out.append(at_, step.length);
    at_ += step.length;
  }

  void read_escape(std::string& out) {
    constexpr std::string_view letters = "\"\\/bfnrt", meanings = "\"\\/\b\f\n\r\t";
    ++at_;
    if (next() == 'u') return read_unicode_escape(out);
    const auto which = at_ == end_ ? std::string_view::npos : letters.find(*at_);
    if (which == std::string_view::npos) refuse("the rest of an escape");
    out += meanings[which];
    ++at_;
  }

  void read_unicode_escape(std::string& out) {
    auto code = read_unit();
    if (code >= 0xDC00 && code < 0xE000) refuse("the first half of a pair of surrogates before this second one");
    if (code >= 0xD800 && code < 0xDC00) {
      if (next() != '\\') refuse("the second half of a pair of surrogates");
      ++at_;
      const auto second = next() == 'u' ? read_unit() : 0;
      if (second < 0xDC00 || second >= 0xE000) refuse("the second half of a pair of surrogates");
      code = 0x10000 + ((code - 0xD800) << 10U) + (second - 0xDC00);
    }
    out += to_utf8(code);
  }

  // "uXXXX"
  char32_t read_unit() {
    unsigned unit = 0;
    const auto room = std::min<std::ptrdiff_t>(end_ - at_, 5);
    const auto read = std::from_chars(at_ + 1, at_ + room, unit, 16);
    if (room < 5 || read.ptr != at_ + 5 || at_[1] == '-') refuse("\\u and four hexadecimal digits");
    at_ += 5;
    return unit;
  }

  void skip_digits() {
    if (!is_digit(next())) refuse("a digit");
    while (is_digit(next())) ++at_;
  }

  Json read_number() {
    const auto* begin = at_;
    if (next() == '-') ++at_;
    if (at_ == begin && !is_digit(next())) refuse("a value");
    if (next() == '0')
      ++at_;
    else
      skip_digits();
    bool whole = true;
    if (next() == '.') {
      whole = false;
      ++at_;
      skip_digits();
    }
    if (next() == 'e' || next() == 'E') {
      whole = false;
      ++at_;
      if (next() == '+' || next() == '-') ++at_;
      skip_digits();
    }
    return number_of({begin, static_cast<std::size_t>(at_ - begin)}, whole);
  }

  template <class Number>
  static std::optional<Number> exact(std::string_view digits) {
    Number value{};
    const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    return read.ec == std::errc() ? std::optional(value) : std::nullopt;
  }

  Json number_of(std::string_view digits, bool whole) {
    if (whole && digits[0] == '-')
      if (const auto value = exact<std::int64_t>(digits)) return *value;
    if (whole && digits[0] != '-')
      if (const auto value = exact<std::uint64_t>(digits)) return *value;
    if (const auto value = exact<double>(digits)) return *value;
    const double value = std::strtod(std::string(digits).c_str(), nullptr);  // beyond the least or the greatest double
    if (std::isfinite(value)) return value;
    at_ -= digits.size();
    refuse("a number within the range of a double");
  }

  std::string_view words_;
  const char *at_, *end_;
  int level_ = 0;
};

}  // namespace

Json read_json(std::string_view words) { return JsonParser(words).whole(); }

Json parse_json(std::string_view words, std::string* why) {
  try {
    return read_json(words);
  } catch (const JsonError& error) {
    if (why != nullptr) *why = error.what();
    return Json::discarded();
  }
}

}  // namespace tessera
