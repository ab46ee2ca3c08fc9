// Python's json.dumps, for the filter tojson.

#include <algorithm>
#include <cmath>

#include "framework/jinja/chat_template_value.h"
#include "framework/unicode/utf8.h"

namespace tessera::jinja {
namespace {

using Item = std::pair<TemplateValue, TemplateValue>;

void escape_unit(std::uint32_t unit, std::string& out) {
  static const char* const hex = "0123456789abcdef";
  out += "\\u";
  for (const unsigned shift : {12U, 8U, 4U, 0U}) out += hex[(unit >> shift) & 15U];
}

// A character beyond U+FFFF is written as two surrogates.
void escape_code(std::uint32_t code, std::string& out) {
  if (code >= 0x10000) escape_unit(0xD800 + ((code - 0x10000) >> 10U), out);
  escape_unit(code >= 0x10000 ? 0xDC00 + ((code - 0x10000) & 0x3FFU) : code, out);
}

void write_string(const std::string& s, bool ensure_ascii, std::string& out) {
  out += '"';
  for (std::size_t at = 0; at < s.size();) {
    static const std::string_view special = "\"\\\n\r\t\f\b", letters = "\"\\nrtfb";
    const auto step = unicode::utf8_step(s, at);
    const auto code = static_cast<std::uint32_t>(step.code);
    const auto which = code < 0x80 ? special.find(static_cast<char>(code)) : std::string_view::npos;
    if (which != std::string_view::npos)
      out += {'\\', letters[which]};
    else if (code < 0x20 || (ensure_ascii && code >= 0x7F))
      escape_code(code, out);
    else
      out.append(s, at, step.length);
    at += step.length;
  }
  out += '"';
}

std::string number_text(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
  return float_text(value);
}

// The text of a value that is neither a list nor a dictionary; none for one of these, or for what JSON does not have.
std::optional<std::string> scalar_text(const TemplateValue& value) {
  if (value.is_none()) return "null";
  if (const auto* b = value.get<bool>()) return *b ? "true" : "false";
  if (const auto* i = value.get<std::int64_t>()) return std::to_string(*i);
  if (const auto* d = value.get<double>()) return number_text(*d);
  return std::nullopt;
}

class Writer {
 public:
  Writer(const JsonStyle& style, std::int64_t most, std::string& out)
      : style_(style), most_(static_cast<std::size_t>(most)), out_(out) {}

  void write(const TemplateValue& value) {
    const auto* list = value.list();
    if (const auto scalar = scalar_text(value))
      out_ += *scalar;
    else if (const auto* s = value.text())
      write_string(*s, style_.ensure_ascii, out_);
    else if (list && list->type <= List::Type::tuple)
      write_all(list->items, '[', ']', [this](const TemplateValue& item) { write(item); });
    else if (const auto* dict = value.dict())
      write_all(sorted(dict->items), '{', '}', [this](const Item& item) { write_item(item); });
    else
      throw ConfigError(text("Object of type ", type_name(value), " is not JSON serializable"));
  }

 private:
  template <class Items, class Write>
  void write_all(const Items& items, char open, char close, const Write& write_one) {
    out_ += open;
    ++level_;
    bool first = true;
    for (const auto& item : items) {
      if (!std::exchange(first, false)) append(style_.between_items);
      begin_line();
      write_one(item);
    }
    --level_;
    if (!items.empty()) begin_line();
    out_ += close;
  }

  void begin_line() {
    if (!style_.indent) return;
    out_ += '\n';
    for (int i = 0; i < level_; ++i) append(*style_.indent);
  }

  // The style's texts may be long, and are written often.
  void append(const std::string& words) {
    if (out_.size() + words.size() > most_)
      throw ConfigError(text("tojson makes a text of more than ", most_, " bytes, which is the limit"));
    out_ += words;
  }

  void write_item(const Item& item) {
    const auto scalar = scalar_text(item.first);
    if (!scalar && !item.first.text())
      throw ConfigError(text("keys must be str, int, float, bool or None, not ", type_name(item.first)));
    write_string(scalar ? *scalar : *item.first.text(), style_.ensure_ascii, out_);
    append(style_.behind_key);
    write(item.second);
  }

  // Keys are different, so Python, which sorts pairs of key and value, compares keys only.
  std::vector<Item> sorted(std::vector<Item> items) const {
    if (!style_.sort_keys || items.size() < 2) return items;
    if (!std::all_of(items.begin(), items.end(), [](const Item& item) { return item.first.text() != nullptr; }))
      throw ConfigError("tojson: sort_keys with keys that are not strings is not supported");
    // Bytes of UTF-8 have the order of code points.
    std::stable_sort(items.begin(), items.end(),
                     [](const Item& a, const Item& b) { return *a.first.text() < *b.first.text(); });
    return items;
  }

  const JsonStyle& style_;
  std::size_t most_;
  std::string& out_;
  int level_ = 0;
};

}  // namespace

std::string to_json(const TemplateValue& value, const JsonStyle& style, std::int64_t most) {
  std::string out;
  Writer(style, most, out).write(value);
  return out;
}

}  // namespace tessera::jinja
