#include "framework/files/json_line.h"

#include <algorithm>
#include <cstring>

#include "framework/base/error.h"
#include "framework/unicode/utf8.h"

namespace tessera::files {
namespace {

constexpr std::size_t deepest = 970;              // of brackets; json.loads ends with RecursionError near there
constexpr std::ptrdiff_t longest_integer = 4300;  // digits; Python's default of sys.set_int_max_str_digits

bool is_digit(char sign) { return sign >= '0' && sign <= '9'; }

// The first quote, backslash or control character from `at` on.
const char* end_of_plain(const char* at, const char* end) {
  constexpr std::uint64_t ones = 0x0101010101010101U, tops = 0x80 * ones;
  while (end - at >= 8) {
    std::uint64_t bytes;
    std::memcpy(&bytes, at, 8);
    const auto zero_in = [](std::uint64_t x) { return (x - ones) & ~x; };
    const auto found =
        (zero_in(bytes ^ ('"' * ones)) | zero_in(bytes ^ ('\\' * ones)) | ((bytes - 0x20 * ones) & ~bytes)) & tops;
    if (found != 0) return at + __builtin_ctzll(found) / 8;  // a borrow shows false marks only behind a true one
    at += 8;
  }
  while (at < end && *at != '"' && *at != '\\' && static_cast<unsigned char>(*at) >= 0x20) ++at;
  return at;
}

// As utf8.h has it, but also for surrogates: those bytes equal no UTF-8, so such a key equals none that is chosen.
void append_code(std::string& out, char32_t code) {
  if (code < 0x80)
    out += static_cast<char>(code);
  else
    out += unicode::to_utf8(code);
}

}  // namespace

JsonLine::JsonLine(std::vector<std::string> keys) {
  for (auto& key : keys) {
    values_.emplace_back();
    values_.back().key = std::move(key);
  }
}

void JsonLine::refuse(const char* at, const std::string& what) const {
  throw ConfigError(text("is not JSON: column ", at - line_.data() + 1, ": ", what));
}

void JsonLine::skip_blanks() {
  while (at_ < end_ && (*at_ == ' ' || *at_ == '\n' || *at_ == '\r' || *at_ == '\t')) ++at_;
}

bool JsonLine::take(char sign) {
  skip_blanks();
  if (at_ == end_ || *at_ != sign) return false;
  ++at_;
  return true;
}

void JsonLine::expect(char sign, const char* what) {
  if (!take(sign)) refuse(at_, text("expected ", what));
}

void JsonLine::parse(std::string_view line) {
  line_ = line;
  at_ = line.data();
  end_ = at_ + line.size();
  unescaped_.clear();
  unescaped_.reserve(line.size());
  for (auto& value : values_) {
    value.kind = Kind::absent;
    value.texts.clear();
  }
  if (line.substr(0, 3) == "\xEF\xBB\xBF") throw ConfigError("begins with a byte order mark; save the file without it");
  skip_blanks();
  if (at_ == end_) throw ConfigError("is empty; expected a JSON object such as {\"text\": \"...\"}");
  const char* kind = *at_ == '{' ? (parse_object(), nullptr) : skip_value();
  skip_blanks();
  if (at_ != end_) refuse(at_, "expected the end of the line after one JSON value");
  if (kind != nullptr) throw ConfigError(text("holds ", kind, "; expected a JSON object such as {\"text\": \"...\"}"));
  for (const auto& value : values_) check(value);
}

void JsonLine::check(const Value& value) const {
  if (value.kind == Kind::absent)
    throw ConfigError(text("has no key '", value.key, "'; name the key that holds the text with --json-keys"));
  if (value.kind == Kind::other)
    throw ConfigError(text("the value of '", value.key, "' is ", value.wrong, "; expected a text or a list of texts"));
  if (value.wrong != nullptr)
    throw ConfigError(text("the list '", value.key, "' holds ", value.wrong, "; expected texts"));
  if (value.lone_surrogate)
    throw ConfigError(text("the text of '", value.key,
                           "' has one half of a surrogate pair (\\ud800 to \\udfff) without the other, which is no "
                           "character; repair or remove it"));
}

void JsonLine::parse_object() {
  ++at_;
  if (take('}')) return;
  do {
    skip_blanks();
    if (at_ == end_ || *at_ != '"') refuse(at_, "expected a key in double quotes");
    const auto key = parse_string().text;
    expect(':', "':' after the key");
    const auto chosen =
        std::find_if(values_.begin(), values_.end(), [&](const Value& value) { return value.key == key; });
    if (chosen == values_.end()) {
      skip_value();
      continue;
    }
    parse_chosen(*chosen);
    for (auto& other : values_)  // a key that is asked for twice
      if (&other != &*chosen && other.key == key) other = *chosen;
  } while (take(','));
  expect('}', "',' or '}'");
}

void JsonLine::parse_chosen(Value& value) {
  value.wrong = nullptr;
  value.lone_surrogate = false;
  value.texts.clear();
  skip_blanks();
  if (at_ < end_ && *at_ == '"') {
    const auto string = parse_string();
    value.kind = Kind::string;
    value.texts.push_back(string.text);
    value.lone_surrogate = string.lone_surrogate;
  } else if (at_ < end_ && *at_ == '[') {
    value.kind = Kind::list;
    parse_list(value);
  } else {
    value.kind = Kind::other;
    value.wrong = skip_value();
  }
}

void JsonLine::parse_list(Value& value) {
  ++at_;
  if (take(']')) return;
  do {
    skip_blanks();
    if (at_ < end_ && *at_ == '"') {
      const auto string = parse_string();
      value.texts.push_back(string.text);
      value.lone_surrogate = value.lone_surrogate || string.lone_surrogate;
    } else {
      const auto* kind = skip_value();
      if (value.wrong == nullptr) value.wrong = kind;
    }
  } while (take(','));
  expect(']', "',' or ']'");
}

// Any value; says its type. No recursion: brackets may be open as deep as `deepest`.
const char* JsonLine::skip_value() {
  open_.clear();
  skip_blanks();
  const char* kind = at_ < end_ && *at_ == '{' ? "object" : at_ < end_ && *at_ == '[' ? "array" : nullptr;
  const auto key = [&] {
    skip_blanks();
    if (at_ == end_ || *at_ != '"') refuse(at_, "expected a key in double quotes");
    parse_string();
    expect(':', "':' after the key");
  };
  for (;;) {
    skip_blanks();
    bool complete = true;  // a value ended here
    if (at_ < end_ && (*at_ == '{' || *at_ == '[')) {
      if (open_.size() == deepest) refuse(at_, text("brackets are nested deeper than ", deepest));
      open_.push_back(*at_++ == '{' ? '}' : ']');
      complete = take(open_.back());
      if (complete)
        open_.pop_back();
      else if (open_.back() == '}')
        key();
    } else {
      const auto* scalar = skip_scalar();
      if (open_.empty()) return scalar;
    }
    while (complete && !open_.empty()) {
      if (take(',')) {
        if (open_.back() == '}') key();
        break;
      }
      expect(open_.back(), open_.back() == '}' ? "',' or '}'" : "',' or ']'");
      open_.pop_back();
    }
    if (open_.empty()) return kind;
  }
}

const char* JsonLine::skip_scalar() {
  if (at_ == end_) refuse(at_, "expected a value");
  switch (*at_) {
    case '"':
      parse_string();
      return "string";
    case 'n':
      skip_word("null");
      return "null";
    case 't':
      skip_word("true");
      return "boolean";
    case 'f':
      skip_word("false");
      return "boolean";
    case 'N':
      skip_word("NaN");
      return "number";
    case 'I':
      skip_word("Infinity");
      return "number";
    default:
      skip_number();
      return "number";
  }
}

void JsonLine::skip_word(std::string_view word) {
  if (std::string_view(at_, static_cast<std::size_t>(end_ - at_)).substr(0, word.size()) != word)
    refuse(at_, "expected a value");
  at_ += word.size();
}

void JsonLine::skip_number() {
  const auto* first = at_;
  const auto digits = [&] {
    const auto* from = at_;
    while (at_ < end_ && is_digit(*at_)) ++at_;
    return at_ - from;
  };
  if (*at_ == '-') ++at_;
  if (at_ > first && at_ < end_ && *at_ == 'I') return skip_word("Infinity");
  std::ptrdiff_t whole = 1;
  if (at_ < end_ && *at_ == '0')
    ++at_;
  else if ((whole = digits()) == 0)
    refuse(first, "expected a value");
  bool integer = true;
  if (end_ - at_ >= 2 && *at_ == '.' && is_digit(at_[1])) {
    ++at_;
    digits();
    integer = false;
  }
  if (at_ < end_ && (*at_ == 'e' || *at_ == 'E')) {
    const auto* exponent = at_++;
    if (at_ < end_ && (*at_ == '+' || *at_ == '-')) ++at_;
    if (digits() == 0) refuse(exponent, "expected digits in the exponent");
    integer = false;
  }
  if (integer && whole > longest_integer)
    refuse(first, text("an integer of ", whole, " digits; Python reads at most ", longest_integer));
}

JsonLine::String JsonLine::parse_string() {
  const auto* first = ++at_;
  at_ = end_of_plain(at_, end_);
  if (at_ < end_ && *at_ == '"') return {{first, static_cast<std::size_t>(at_++ - first)}, false};
  return unescape(first);
}

// The code unit behind a backslash and u.
char32_t JsonLine::parse_hex(const char* backslash) {
  char32_t code = 0;
  for (int i = 0; i < 4; ++i, ++at_) {
    const auto sign = at_ < end_ ? *at_ : '"';
    const auto lower = static_cast<char>(sign | 0x20);
    if (is_digit(sign))
      code = code * 16 + static_cast<char32_t>(sign - '0');
    else if (lower >= 'a' && lower <= 'f')
      code = code * 16 + static_cast<char32_t>(lower - 'a' + 10);
    else
      refuse(backslash, "expected four hexadecimal digits after \\u");
  }
  return code;
}

// From the first backslash, at at_, of a string that begins at `first`.
JsonLine::String JsonLine::unescape(const char* first) {
  const auto begin = unescaped_.size();
  String string;
  for (;;) {
    unescaped_.append(first, at_);
    if (at_ == end_) refuse(line_.data() + line_.size(), "a string without its closing quote");
    if (*at_ == '"') break;
    if (*at_ != '\\')
      refuse(at_, text("the control character ", static_cast<int>(*at_),
                       " in a string; write it as an escape such as \\n or \\u0000"));
    const auto* backslash = at_++;
    const char sign = at_ < end_ ? *at_ : '\0';
    static constexpr std::string_view escapes = "\"\\/bfnrt", meanings = "\"\\/\b\f\n\r\t";
    if (const auto which = escapes.find(sign); which != std::string_view::npos) {
      unescaped_ += meanings[which];
      ++at_;
    } else if (sign == 'u') {
      ++at_;
      auto code = parse_hex(backslash);
      if (code >= 0xD800 && code < 0xDC00 && end_ - at_ >= 2 && at_[0] == '\\' && at_[1] == 'u') {
        const auto* second = at_;
        at_ += 2;
        if (const auto low = parse_hex(second); low >= 0xDC00 && low < 0xE000)
          code = 0x10000 + ((code - 0xD800) << 10U) + (low - 0xDC00);
        else
          at_ = second;
      }
      string.lone_surrogate = string.lone_surrogate || (code >= 0xD800 && code < 0xE000);
      append_code(unescaped_, code);
    } else {
      refuse(backslash, "an escape that JSON does not have");
    }
    first = at_;
    at_ = end_of_plain(at_, end_);
  }
  ++at_;
  string.text = std::string_view(unescaped_).substr(begin);
  return string;
}

}  // namespace tessera::files
