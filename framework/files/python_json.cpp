#include "framework/files/python_json.h"

#include <charconv>
#include <cmath>
#include <cstdlib>

#include "framework/unicode/utf8.h"

namespace tessera::files {
namespace {

using OrderedJson = nlohmann::ordered_json;

void add_unit(std::string& out, unsigned unit) {
  constexpr const char* digits = "0123456789abcdef";
  out += "\\u";
  for (unsigned shift = 16; shift > 0; shift -= 4) out += digits[(unit >> (shift - 4)) & 15U];
}

void add_character(std::string& out, char32_t code) {
  switch (code) {
    case '"':
      out += "\\\"";
      return;
    case '\\':
      out += "\\\\";
      return;
    case '\n':
      out += "\\n";
      return;
    case '\r':
      out += "\\r";
      return;
    case '\t':
      out += "\\t";
      return;
    case '\b':
      out += "\\b";
      return;
    case '\f':
      out += "\\f";
      return;
    default:
      break;
  }
  if (code >= ' ' && code <= '~') {
    out += static_cast<char>(code);
  } else if (code < 0x10000) {
    add_unit(out, static_cast<unsigned>(code));
  } else {
    const auto above = static_cast<unsigned>(code - 0x10000);
    add_unit(out, 0xD800 + (above >> 10U));
    add_unit(out, 0xDC00 + (above & 0x3FFU));
  }
}

void add_text(std::string& out, const std::string& text) {
  out += '"';
  for (std::size_t at = 0; at < text.size();) {
    const auto step = unicode::utf8_step(text, at);
    if (step.valid) {
      add_character(out, step.code);
    } else {
      for (std::size_t i = at; i < at + step.length; ++i) add_unit(out, 0xDC00U + static_cast<unsigned char>(text[i]));
    }
    at += step.length;
  }
  out += '"';
}

void add_number(std::string& out, double value) {
  if (std::isfinite(value))
    out += python_float(value);
  else
    out += std::isnan(value) ? "NaN" : value < 0 ? "-Infinity" : "Infinity";
}

void add(std::string& out, const OrderedJson& value, std::size_t depth);

template <class AddItem>
void add_items(std::string& out, const OrderedJson& value, std::size_t depth, std::string_view brackets,
               AddItem add_item) {
  out += brackets[0];
  bool first = true;
  for (auto item = value.begin(); item != value.end(); ++item) {
    out += first ? "\n" : ",\n";
    first = false;
    out.append(4 * (depth + 1), ' ');
    add_item(item);
  }
  if (!first) {
    out += '\n';
    out.append(4 * depth, ' ');
  }
  out += brackets[1];
}

void add(std::string& out, const OrderedJson& value, std::size_t depth) {
  if (value.is_object()) {
    add_items(out, value, depth, "{}", [&](const auto& item) {
      add_text(out, item.key());
      out += ": ";
      add(out, item.value(), depth + 1);
    });
  } else if (value.is_array()) {
    add_items(out, value, depth, "[]", [&](const auto& item) { add(out, *item, depth + 1); });
  } else if (value.is_string()) {
    add_text(out, value.get_ref<const std::string&>());
  } else if (value.is_number_float()) {
    add_number(out, value.get<double>());
  } else {
    out += value.dump();
  }
}

}  // namespace

std::string python_float(double value) {
  char buffer[64];
  const auto written = [&](std::chars_format format) {
    return std::string(buffer, std::to_chars(buffer, buffer + sizeof buffer, value, format).ptr);
  };
  auto scientific = written(std::chars_format::scientific);
  const int exponent = std::atoi(scientific.c_str() + scientific.find('e') + 1);
  if (exponent < -4 || exponent >= 16) return scientific;  // both write at least two digits of the exponent
  auto fixed = written(std::chars_format::fixed);
  return fixed.find('.') == std::string::npos ? fixed + ".0" : fixed;
}

std::string python_json(const OrderedJson& value) {
  std::string out;
  add(out, value, 0);
  return out;
}

}  // namespace tessera::files
