#include "framework/files/python_value.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "framework/base/error.h"
#include "framework/files/python_json.h"
#include "framework/unicode/utf8.h"

namespace tessera::files {
namespace {

using Kind = PythonValue::Kind;

constexpr int most_levels = 970;                   // json.loads ends with RecursionError near there
constexpr std::size_t most_integer_digits = 4300;  // Python's default of sys.set_int_max_str_digits

bool is_decimal(char sign) { return sign >= '0' && sign <= '9'; }

class ValueReader {
 public:
  ValueReader(std::string_view words, std::int64_t first_line) : words_(words), first_line_(first_line) {}

  PythonValue whole() {
    if (const auto at = unicode::first_not_utf8(words_); at != std::string_view::npos) refuse(at, "is not UTF-8");
    auto value = read(0);
    skip_blanks();
    if (at_ != words_.size()) refuse(at_, "expected the end behind the value");
    return value;
  }

 private:
  [[noreturn]] void refuse(std::size_t at, const std::string& what) const {
    const auto before = words_.substr(0, at);
    const auto lines = std::count(before.begin(), before.end(), '\n');
    const auto begin = before.rfind('\n');
    throw ConfigError(text("line ", first_line_ + lines, ", column ",
                           at - (begin == std::string_view::npos ? 0 : begin + 1) + 1, ": ", what));
  }
  char sign() const { return at_ < words_.size() ? words_[at_] : '\0'; }
  void skip_blanks() {
    while (sign() == ' ' || sign() == '\n' || sign() == '\r' || sign() == '\t') ++at_;
  }
  bool took(char wanted) {
    skip_blanks();
    if (sign() != wanted) return false;
    ++at_;
    return true;
  }

  PythonValue read(int level) {
    if (level == most_levels) refuse(at_, text("brackets are nested deeper than ", most_levels));
    skip_blanks();
    switch (sign()) {
      case '{':
        return read_object(level);
      case '[':
        return read_list(level);
      case '"':
        return read_text();
      default:
        return read_scalar();
    }
  }

  PythonValue read_object(int level) {
    PythonValue made{Kind::object};
    ++at_;
    if (took('}')) return made;
    do {
      skip_blanks();
      if (sign() != '"') refuse(at_, "expected a key in double quotes");
      auto key = read_text();
      made.lone_surrogate = made.lone_surrogate || key.lone_surrogate;
      auto& name = key.words;
      if (!took(':')) refuse(at_, "expected ':' behind the key");
      const auto same = std::find(made.names.begin(), made.names.end(), name);
      if (same != made.names.end()) {
        made.items[static_cast<std::size_t>(same - made.names.begin())] = read(level + 1);
        continue;
      }
      made.names.push_back(std::move(name));
      made.items.push_back(read(level + 1));
    } while (took(','));
    if (!took('}')) refuse(at_, "expected ',' or '}'");
    return made;
  }

  PythonValue read_list(int level) {
    PythonValue made{Kind::list};
    ++at_;
    if (took(']')) return made;
    do made.items.push_back(read(level + 1));
    while (took(','));
    if (!took(']')) refuse(at_, "expected ',' or ']'");
    return made;
  }

  PythonValue read_scalar() {
    static constexpr std::pair<std::string_view, Kind> constants[] = {
        {"null", Kind::null},  {"true", Kind::boolean},    {"false", Kind::boolean},
        {"NaN", Kind::number}, {"Infinity", Kind::number}, {"-Infinity", Kind::number}};
    for (const auto& [word, kind] : constants)
      if (words_.substr(at_, word.size()) == word) {
        at_ += word.size();
        return {kind, std::string(word)};
      }
    return read_number();
  }

  std::size_t take_digits() {
    const auto first = at_;
    while (is_decimal(sign())) ++at_;
    return at_ - first;
  }

  PythonValue read_number() {
    const auto first = at_;
    if (sign() == '-') ++at_;
    std::size_t digits = 1;
    if (sign() == '0')
      ++at_;
    else if ((digits = take_digits()) == 0)
      refuse(first, "expected a value");
    bool is_integer = true;
    if (sign() == '.' && at_ + 1 < words_.size() && is_decimal(words_[at_ + 1])) {
      ++at_;
      take_digits();
      is_integer = false;
    }
    if (sign() == 'e' || sign() == 'E') {
      auto end = at_ + 1;
      if (end < words_.size() && (words_[end] == '+' || words_[end] == '-')) ++end;
      if (end < words_.size() && is_decimal(words_[end])) {
        at_ = end;
        take_digits();
        is_integer = false;
      }
    }
    std::string given(words_.substr(first, at_ - first));
    if (is_integer && digits > most_integer_digits)
      refuse(first, text("an integer of ", digits, " digits; Python reads at most ", most_integer_digits));
    if (is_integer) return {Kind::number, given == "-0" ? "0" : given};
    const auto value = std::strtod(given.c_str(), nullptr);
    return {Kind::number, std::isfinite(value) ? python_float(value) : value < 0 ? "-Infinity" : "Infinity"};
  }

  char32_t read_hex(std::size_t backslash) {
    std::uint32_t code = 0;
    const auto digits = words_.substr(std::min(at_, words_.size()), 4);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
    if (digits.size() != 4 || error != std::errc() || end != digits.data() + 4)
      refuse(backslash, "expected four hexadecimal digits behind \\u");
    at_ += 4;
    return code;
  }

  void read_escape(PythonValue& made) {
    static constexpr std::string_view escapes = "\"\\/bfnrt", meanings = "\"\\/\b\f\n\r\t";
    const auto backslash = at_++;
    const auto which = escapes.find(sign());
    if (at_ < words_.size() && which != std::string_view::npos) {
      made.words += meanings[which];
      ++at_;
      return;
    }
    if (sign() != 'u') refuse(backslash, "an escape that JSON does not have");
    ++at_;
    auto code = read_hex(backslash);
    if (code >= 0xD800 && code < 0xDC00 && words_.substr(at_, 2) == "\\u") {
      const auto second = at_;
      at_ += 2;
      if (const auto low = read_hex(second); low >= 0xDC00 && low < 0xE000)
        code = 0x10000 + ((code - 0xD800) << 10U) + (low - 0xDC00);
      else
        at_ = second;
    }
    made.lone_surrogate = made.lone_surrogate || (code >= 0xD800 && code < 0xE000);
    if (code < 0x80)
      made.words += static_cast<char>(code);
    else
      made.words += unicode::to_utf8(code);
  }

  PythonValue read_text() {
    const auto first = at_++;
    PythonValue made{Kind::text};
    for (;;) {
      auto end = at_;
      while (end < words_.size() && words_[end] != '"' && words_[end] != '\\' &&
             static_cast<unsigned char>(words_[end]) >= 0x20)
        ++end;
      made.words.append(words_, at_, end - at_);
      at_ = end;
      if (at_ == words_.size()) refuse(first, "a text without its closing quote");
      if (words_[at_] == '"') break;
      if (words_[at_] != '\\')
        refuse(at_, text("the control character ", static_cast<int>(words_[at_]),
                         " in a text; write it as an escape such as \\n or \\u0000"));
      read_escape(made);
    }
    ++at_;
    return made;
  }

  std::string_view words_;
  std::int64_t first_line_;
  std::size_t at_ = 0;
};

}  // namespace

const PythonValue* PythonValue::find(std::string_view name) const {
  const auto found = std::find(names.begin(), names.end(), name);
  return found == names.end() ? nullptr : &items[static_cast<std::size_t>(found - names.begin())];
}

bool PythonValue::is_falsy() const {
  if (kind == Kind::number)  // 0, 0.0, -0.0
    return words.find_first_not_of("-0.") == std::string::npos;
  return kind == Kind::null || (kind == Kind::boolean && words == "false") || (kind == Kind::text && words.empty()) ||
         (kind >= Kind::list && items.empty());
}

const char* PythonValue::kind_name() const {
  static constexpr const char* names_of_kinds[] = {"null", "a boolean", "a number", "a text", "a list", "an object"};
  return names_of_kinds[static_cast<std::size_t>(kind)];
}

PythonValue read_python_value(std::string_view words, std::int64_t first_line) {
  return ValueReader(words, first_line).whole();
}

void append_python_text(std::string_view words, std::string& out) {
  static constexpr std::string_view escapes = "\"\\bfnrt", meanings = "\"\\\b\f\n\r\t";
  static constexpr std::string_view digits = "0123456789abcdef";
  out += '"';
  for (const auto sign : words) {
    const auto which = meanings.find(sign);
    const auto byte = static_cast<unsigned char>(sign);
    if (which != std::string_view::npos)
      (out += '\\') += escapes[which];
    else if (byte < 0x20)
      ((out += "\\u00") += digits[byte >> 4U]) += digits[byte & 15U];
    else
      out += sign;
  }
  out += '"';
}

void append_python_value(const PythonValue& value, std::string& out) {
  if (value.lone_surrogate)
    throw ConfigError(
        "a text has half of a surrogate pair (\\ud800 to \\udfff) without the other, which is no character; correct "
        "or remove it");
  if (value.kind == Kind::text) return append_python_text(value.words, out);
  if (value.kind < Kind::list) {
    out += value.words.empty() ? "null" : value.words;
    return;
  }
  const bool is_list = value.kind == Kind::list;
  out += is_list ? '[' : '{';
  for (std::size_t i = 0; i < value.items.size(); ++i) {
    if (i > 0) out += ", ";
    if (!is_list) {
      append_python_text(value.names[i], out);
      out += ": ";
    }
    append_python_value(value.items[i], out);
  }
  out += is_list ? ']' : '}';
}

}  // namespace tessera::files
