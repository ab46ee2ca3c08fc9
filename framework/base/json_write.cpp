#include <charconv>
#include <cmath>

#include "framework/base/json.h"
#include "framework/base/utf8.h"

namespace tessera {
namespace {

void add_control(std::string& out, unsigned char c) {
  constexpr std::string_view meanings = "\b\f\n\r\t", letters = "bfnrt", digits = "0123456789abcdef";
  out += '\\';
  if (const auto which = meanings.find(static_cast<char>(c)); which != std::string_view::npos) {
    out += letters[which];
  } else {
    out += "u00";
    out += digits[c >> 4U];
    out += digits[c & 0xFU];
  }
}

// Writes what begins at words[at] and cannot be copied as it is; returns its length.
std::size_t add_special(std::string& out, std::string_view words, std::size_t at) {
  const auto c = static_cast<unsigned char>(words[at]);
  if (c < 0x20) {
    add_control(out, c);
    return 1;
  }
  if (c < 0x80) {
    out += {'\\', static_cast<char>(c)};
    return 1;
  }
  const auto step = utf8_step(words, at);
  out += step.valid ? words.substr(at, step.length) : replacement_character;
  return step.length;
}

void add_quoted(std::string& out, std::string_view words) {
  out += '"';
  for (std::size_t at = 0; at < words.size();) {
    const auto begin = at;
    const auto plain = [](unsigned char c) { return c >= 0x20 && c < 0x80 && c != '"' && c != '\\'; };
    while (at < words.size() && plain(static_cast<unsigned char>(words[at]))) ++at;
    out += words.substr(begin, at - begin);
    if (at < words.size()) at += add_special(out, words, at);
  }
  out += '"';
}

template <class Number>
void add_number(std::string& out, Number value) {
  char digits[32];
  out.append(digits, std::to_chars(digits, digits + sizeof digits, value).ptr);
}

void add_real(std::string& out, double value) { out += std::isfinite(value) ? real_text(value, 15) : "null"; }

class JsonWriter {
 public:
  JsonWriter(std::string& out, int indent) : out_(out), indent_(indent) {}

  void add(const Json& json) {
    switch (json.type()) {
      case Json::Type::null:
        out_ += "null";
        break;
      case Json::Type::boolean:
        out_ += json.boolean() ? "true" : "false";
        break;
      case Json::Type::integer:
        add_number(out_, json.get<std::int64_t>());
        break;
      case Json::Type::unsigned_integer:
        add_number(out_, json.get<std::uint64_t>());
        break;
      case Json::Type::real:
        add_real(out_, json.number());
        break;
      case Json::Type::string:
        add_quoted(out_, json.string());
        break;
      case Json::Type::array:
        add_all(json, "[]", [&](const Json& item) { add(item); });
        break;
      case Json::Type::object:
        add_all(json.items(), "{}", [&](const Json::Member& member) {
          add_quoted(out_, member.name);
          out_ += indent_ < 0 ? ":" : ": ";
          add(member.value);
        });
        break;
      case Json::Type::discarded:
        out_ += "<discarded>";
    }
  }

 private:
  template <class Items, class Add>
  void add_all(const Items& items, std::string_view brackets, const Add& add_one) {
    out_ += brackets[0];
    ++level_;
    bool first = true;
    for (const auto& item : items) {
      if (!first) out_ += ',';
      first = false;
      begin_line();
      add_one(item);
    }
    --level_;
    if (!first) begin_line();
    out_ += brackets[1];
  }

  void begin_line() {
    if (indent_ < 0) return;
    out_ += '\n';
    out_.append(level_ * static_cast<std::size_t>(indent_), ' ');
  }

  std::string& out_;
  int indent_;
  std::size_t level_ = 0;
};

}  // namespace

std::string real_text(double value, int most_whole_digits) {
  char buffer[64];
  const auto written = [&](std::chars_format format) {
    return std::string(buffer, std::to_chars(buffer, buffer + sizeof buffer, value, format).ptr);
  };
  auto scientific = written(std::chars_format::scientific);
  const int exponent = std::stoi(scientific.substr(scientific.find('e') + 1));
  if (exponent < -4 || exponent >= most_whole_digits) return scientific;
  auto fixed = written(std::chars_format::fixed);
  return fixed.find('.') == std::string::npos ? fixed + ".0" : fixed;
}

std::string Json::dump(int indent) const {
  std::string out;
  JsonWriter(out, indent).add(*this);
  return out;
}

std::string json_quoted(std::string_view words) {
  std::string out;
  add_quoted(out, words);
  return out;
}

}  // namespace tessera
