#include "framework/data/parquet/parquet_json.h"

#include <array>
#include <charconv>
#include <cstdlib>

#include "framework/unicode/utf8.h"

namespace tessera::data {
namespace {

void append_escape(std::string& out, char32_t code) {
  static constexpr char digits[] = "0123456789abcdef";
  out += "\\u";
  for (int shift = 12; shift >= 0; shift -= 4) out += digits[(code >> static_cast<unsigned>(shift)) & 0xFU];
}

// Python's repr(float): the fewest digits; an exponent below 1e-4 and from 1e16 on.
std::string python_number(double value) {
  std::array<char, 40> buffer{};
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::scientific);
  const std::string_view whole(buffer.data(), static_cast<std::size_t>(end.ptr - buffer.data()));
  const auto mark = whole.find('e');
  const auto exponent = std::atoi(whole.data() + mark + 1);
  std::string out, digits;
  if (whole.front() == '-') out += '-';
  for (const auto c : whole.substr(out.size(), mark - out.size()))
    if (c != '.') digits += c;
  if (exponent < -4 || exponent >= 16) {
    out += digits.front();
    if (digits.size() > 1) out += '.';
    out.append(digits, 1);
    out += exponent < 0 ? "e-" : "e+";
    if (std::abs(exponent) < 10) out += '0';
    out += std::to_string(std::abs(exponent));
    return out;
  }
  if (exponent < 0) {
    out += "0.";
    out.append(static_cast<std::size_t>(-exponent - 1), '0');
    return out += digits;
  }
  const auto before = static_cast<std::size_t>(exponent) + 1;
  if (digits.size() < before) digits.resize(before, '0');
  out.append(digits, 0, before);
  out += '.';
  if (digits.size() == before) digits += '0';
  return out.append(digits, before);
}

}  // namespace

void JsonRow::separate() {
  if (!first_) line_ += ", ";
  first_ = false;
}

void JsonRow::null() {
  separate();
  line_ += "null";
}

void JsonRow::boolean(bool value) {
  separate();
  line_ += value ? "true" : "false";
}

void JsonRow::integer(std::int64_t value) {
  separate();
  line_ += std::to_string(value);
}

void JsonRow::unsigned_integer(std::uint64_t value) {
  separate();
  line_ += std::to_string(value);
}

void JsonRow::number(double value) {
  separate();
  line_ += python_number(value);
}

void JsonRow::string(std::string_view value) {
  separate();
  quote(value);
}

void JsonRow::begin_list() {
  separate();
  line_ += "[";
  first_ = true;
  ++depth_;
}

void JsonRow::end_list() {
  line_ += "]";
  first_ = false;
  --depth_;
}

void JsonRow::begin_structure() {
  if (depth_++ == 0) {
    line_.clear();
    first_ = true;
  }
  separate();
  line_ += "{";
  first_ = true;
}

void JsonRow::key(std::string_view name) {
  separate();
  quote(name);
  line_ += ": ";
  first_ = true;
}

void JsonRow::end_structure() {
  line_ += "}";
  first_ = false;
  --depth_;
}

void JsonRow::quote(std::string_view value) {
  line_ += '"';
  for (std::size_t at = 0; at < value.size();) {
    const auto c = value[at];
    if (c >= ' ' && c <= '~') {
      if (c == '"' || c == '\\') line_ += '\\';
      line_ += c;
      ++at;
      continue;
    }
    if (!ascii_ && static_cast<unsigned char>(c) >= 0x80) {
      line_ += c;
      ++at;
      continue;
    }
    const auto step = unicode::utf8_step(value, at);
    at += step.length;
    static constexpr std::string_view controls = "\b\f\n\r\t", letters = "bfnrt";
    if (const auto which = step.code < 0x80 ? controls.find(static_cast<char>(step.code)) : std::string_view::npos;
        which != std::string_view::npos) {
      line_ += '\\';
      line_ += letters[which];
    } else if (step.code < 0x10000) {
      append_escape(line_, step.code);
    } else {
      append_escape(line_, 0xD800 + ((step.code - 0x10000) >> 10U));
      append_escape(line_, 0xDC00 + ((step.code - 0x10000) & 0x3FFU));
    }
  }
  line_ += '"';
}

}  // namespace tessera::data
