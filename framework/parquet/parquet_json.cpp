#include "framework/parquet/parquet_json.h"

#include "framework/files/python_json.h"
#include "framework/unicode/utf8.h"

namespace tessera::parquet {
namespace {

void append_escape(std::string& out, char32_t code) {
  static constexpr char digits[] = "0123456789abcdef";
  out += "\\u";
  for (int shift = 12; shift >= 0; shift -= 4) out += digits[(code >> static_cast<unsigned>(shift)) & 0xFU];
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
  line_ += files::python_float(value);
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

}  // namespace tessera::parquet
