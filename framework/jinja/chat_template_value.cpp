#include "framework/jinja/chat_template_value.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "framework/files/python_json.h"
#include "framework/unicode/unicode_code_points.h"
#include "framework/unicode/utf8.h"

namespace tessera::jinja {

namespace {

// Sums stay far below overflow.
std::int64_t sum_of_sizes(std::int64_t sum, const TemplateValue& one, const TemplateValue& other = {}) {
  return std::min<std::int64_t>(sum + size_of(one) + size_of(other), 1LL << 60U);
}

}  // namespace

const TemplateValue* Dict::find(const TemplateValue& key) const {
  for (const auto& [name, value] : items)
    if (equal(name, key)) return &value;
  return nullptr;
}

void Dict::set(const TemplateValue& key, TemplateValue value) {
  depth = std::max({depth, 1 + depth_of(value), 1 + depth_of(key)});
  size = sum_of_sizes(size, key, value);
  for (auto& [name, old] : items)
    if (equal(name, key)) {
      old = std::move(value);
      return;
    }
  items.emplace_back(key, std::move(value));
}

const TemplateValue* Namespace::find(std::string_view name) const {
  for (const auto& [key, value] : items)
    if (key == name) return &value;
  return nullptr;
}

void Namespace::set(std::string_view name, TemplateValue value) {
  for (auto& [key, old] : items)
    if (key == name) {
      old = std::move(value);
      return;
    }
  items.emplace_back(std::string(name), std::move(value));
}

bool Loop::has(std::size_t at) {
  if (filtering && passed <= at)
    throw ConfigError("the filter of a for loop needs the next item or the length of its own loop");
  while (passed <= at && tested < items.size()) {
    if (!filter)
      throw ConfigError("the next item or the length of a for loop with a filter is not supported after the loop");
    filtering = true;
    const TemplateValue item = items[tested++];
    if (filter(item)) items[passed++] = item;
    filtering = false;
  }
  return at < passed;
}

std::int64_t Loop::length() {
  has(items.size());
  return static_cast<std::int64_t>(passed);
}

std::string type_name(const TemplateValue& value) {
  static const char* const names[] = {"Undefined", "NoneType", "bool",      "int",      "float",       "str",
                                      "list",      "dict",     "Namespace", "function", "LoopContext", "Markup"};
  if (const auto* list = value.list()) {
    static const char* const types[] = {"list", "tuple", "range", "dictionary view", "generator"};
    return types[static_cast<int>(list->type)];
  }
  return names[value.data.index()];
}

bool truth(const TemplateValue& value) {
  if (value.is_undefined() || value.is_none()) return false;
  if (const auto* b = value.get<bool>()) return *b;
  if (const auto* i = value.get<std::int64_t>()) return *i != 0;
  if (const auto* d = value.get<double>()) return *d != 0;
  if (const auto* s = value.text()) return !s->empty();
  if (const auto* list = value.list()) return list->type == List::Type::generator || !list->items.empty();
  if (const auto* dict = value.dict()) return !dict->items.empty();
  return true;
}

namespace {

/// Python's comparison of an int and a float is exact.
bool same_number(std::int64_t whole, double real) {
  return real >= -0x1p63 && real < 0x1p63 && std::trunc(real) == real && static_cast<std::int64_t>(real) == whole;
}

/// A bool is an int.
const std::int64_t* as_integer(const TemplateValue& value, std::int64_t& held) {
  if (const auto* b = value.get<bool>()) return held = *b ? 1 : 0, &held;
  return value.get<std::int64_t>();
}

}  // namespace

bool equal(const TemplateValue& one, const TemplateValue& other) {
  std::int64_t held_a = 0, held_b = 0;
  const auto* a = as_integer(one, held_a);
  const auto* b = as_integer(other, held_b);
  if (a && b) return *a == *b;
  if (a && other.get<double>()) return same_number(*a, *other.get<double>());
  if (b && one.get<double>()) return same_number(*b, *one.get<double>());
  if (one.text() && other.text()) return *one.text() == *other.text();
  if (one.data.index() != other.data.index()) return false;
  if (one.is_undefined() || one.is_none()) return true;
  if (const auto* d = one.get<double>()) return *d == *other.get<double>();
  if (const auto* list = one.list()) {
    const auto* same = other.list();
    if (list == same) return true;
    if (list->type != same->type || list->type == List::Type::generator || list->type == List::Type::view) return false;
    return std::equal(list->items.begin(), list->items.end(), same->items.begin(), same->items.end(), equal);
  }
  if (const auto* dict = one.dict()) {
    const auto* same = other.dict();
    return dict->items.size() == same->items.size() &&
           std::all_of(dict->items.begin(), dict->items.end(), [&](const auto& item) {
             const auto* found = same->find(item.first);
             return found && equal(item.second, *found);
           });
  }
  if (const auto* n = one.get<std::shared_ptr<Namespace>>()) return *n == *other.get<std::shared_ptr<Namespace>>();
  throw ConfigError(text("comparing values of type ", type_name(one), " is not supported"));
}

std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  return files::python_float(value);
}

namespace {

// Hexadecimal digits, two at least.
std::string unicode_digits(char32_t code) {
  std::array<char, 16> digits{};
  std::snprintf(digits.data(), digits.size(), "%02x", static_cast<unsigned>(code));
  return digits.data();
}

// Whether Python's repr() escapes the character; the last Unicode version of a Python is not known, so a character that
// has become printable since 3.11 is refused.
bool is_hidden(char32_t code) {
  const auto hidden_in = [code](unicode::Version version) {
    return (unicode::bit(unicode::categories(version).of(code)) & (unicode::others | unicode::separators)) != 0;
  };
  const bool hidden = hidden_in(unicode::Version::v14);
  if (hidden != hidden_in(unicode::Version::v18))
    throw ConfigError(text("printing a list or dictionary that holds the character U+", unicode_digits(code),
                           " is not supported, because Python's text depends on its version; use tojson"));
  return hidden;
}

void append_quoted(char32_t code, std::string_view bytes, char quote, std::string& out) {
  if (code == static_cast<unsigned char>(quote) || code == '\\') {
    out += '\\';
    out += bytes;
  } else if (code == '\n' || code == '\r' || code == '\t') {
    out += code == '\n' ? "\\n" : code == '\r' ? "\\r" : "\\t";
  } else if (code == ' ' || !is_hidden(code)) {
    out += bytes;
  } else {
    out += code < 0x100 ? "\\x" : code < 0x10000 ? "\\u" : "\\U";
    const auto digits = unicode_digits(code);
    const std::size_t width = code < 0x100 ? 2 : code < 0x10000 ? 4 : 8;
    out += digits.size() < width ? std::string(width - digits.size(), '0') + digits : digits;
  }
}

std::string quoted(const std::string& s) {
  const char quote = s.find('\'') != std::string::npos && s.find('"') == std::string::npos ? '"' : '\'';
  std::string out(1, quote);
  for (std::size_t at = 0; at < s.size();) {
    const auto step = unicode::utf8_step(s, at);
    append_quoted(step.code, std::string_view(s).substr(at, step.length), quote, out);
    at += step.length;
  }
  return out + quote;
}

}  // namespace

std::string repr(const TemplateValue& value) {
  if (value.is_undefined()) return "Undefined";
  if (value.is_none()) return "None";
  if (const auto* b = value.get<bool>()) return *b ? "True" : "False";
  if (const auto* i = value.get<std::int64_t>()) return std::to_string(*i);
  if (const auto* d = value.get<double>()) return float_text(*d);
  if (value.is_safe())
    throw ConfigError("printing a list or dictionary that holds a text marked as safe is not supported");
  if (const auto* s = value.text()) return quoted(*s);
  std::string out;
  if (const auto* list = value.list(); list && (list->type == List::Type::list || list->type == List::Type::tuple)) {
    const bool tuple = list->type == List::Type::tuple;
    out = tuple ? "(" : "[";
    for (const auto& item : list->items) {
      if (out.size() > 1) out += ", ";
      out += repr(item);
    }
    if (tuple && list->items.size() == 1) out += ',';
    out += tuple ? ')' : ']';
    return out;
  }
  if (const auto* dict = value.dict()) {
    out = "{";
    for (const auto& [key, item] : dict->items) {
      if (out.size() > 1) out += ", ";
      out += repr(key);
      out += ": ";
      out += repr(item);
    }
    out += '}';
    return out;
  }
  throw ConfigError(text("printing a value of type ", type_name(value), " is not supported"));
}

std::string str(const TemplateValue& value) {
  if (value.is_undefined()) return "";
  if (const auto* s = value.text()) return *s;
  return repr(value);
}

std::int64_t size_of(const TemplateValue& value) {
  constexpr std::int64_t own = 16;
  if (const auto* s = value.text()) return own + static_cast<std::int64_t>(s->size());
  if (const auto* list = value.list()) return own + list->size;
  if (const auto* dict = value.dict()) return own + dict->size;
  if (const auto* function = value.get<std::shared_ptr<const Function>>(); function && (*function)->self)
    return own + size_of(*(*function)->self);
  return own;
}

int depth_of(const TemplateValue& value) {
  if (const auto* list = value.list()) return list->depth;
  if (const auto* dict = value.dict()) return dict->depth;
  if (const auto* function = value.get<std::shared_ptr<const Function>>(); function && (*function)->self)
    return 1 + depth_of(*(*function)->self);
  if (value.get<std::shared_ptr<Loop>>()) throw ConfigError("keeping loop in a list is not supported");
  return 0;
}

TemplateValue make_list(Values items, List::Type type) {
  auto list = std::make_shared<List>();
  list->type = type;
  for (const auto& item : items) {
    list->depth = std::max(list->depth, 1 + depth_of(item));
    list->size = sum_of_sizes(list->size, item);
  }
  list->items = std::move(items);
  return TemplateValue(std::move(list));
}

TemplateValue make_dict(std::vector<std::pair<TemplateValue, TemplateValue>> items) {
  auto dict = std::make_shared<Dict>();
  for (auto& [key, value] : items) dict->set(key, std::move(value));
  return TemplateValue(std::move(dict));
}

TemplateValue from_json(const Json& json) {
  switch (json.type()) {
    case Json::Type::boolean:
      return TemplateValue(json.get<bool>());
    case Json::Type::integer:
      return TemplateValue(json.get<std::int64_t>());
    case Json::Type::unsigned_integer:
      if (json.get<std::uint64_t>() > INT64_MAX)
        throw ConfigError(text("the integer ", json.dump(), " in a message has more than 64 bits"));
      return TemplateValue(json.get<std::int64_t>());
    case Json::Type::real:
      return TemplateValue(json.get<double>());
    case Json::Type::string:
      return TemplateValue::of(json.string());
    case Json::Type::array: {
      Values items;
      for (const auto& item : json) items.push_back(from_json(item));
      return make_list(std::move(items));
    }
    case Json::Type::object: {
      auto dict = std::make_shared<Dict>();  // without set: keys are different, and may be many
      for (const auto& [key, item] : json.items()) {
        dict->items.emplace_back(TemplateValue::of(key), from_json(item));
        dict->depth = std::max(dict->depth, 1 + depth_of(dict->items.back().second));
        dict->size = sum_of_sizes(dict->size, dict->items.back().first, dict->items.back().second);
      }
      return TemplateValue(std::move(dict));
    }
    default:
      return TemplateValue::none();
  }
}

std::vector<std::size_t> code_point_starts(std::string_view text) {
  std::vector<std::size_t> starts;
  for (std::size_t at = 0; at < text.size(); at += unicode::utf8_step(text, at).length) starts.push_back(at);
  starts.push_back(text.size());
  return starts;
}

std::size_t code_points(std::string_view text) {
  std::size_t count = 0;
  for (std::size_t at = 0; at < text.size(); at += unicode::utf8_step(text, at).length) ++count;
  return count;
}

bool is_python_space(char32_t code) {
  return (code >= 9 && code <= 13) || (code >= 0x1C && code <= 0x20) || code == 0x85 || code == 0xA0 ||
         code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 || code == 0x2029 || code == 0x202F ||
         code == 0x205F || code == 0x3000;
}

std::string strip(std::string_view text, bool left, bool right, const std::string* characters) {
  std::vector<char32_t> set;
  if (characters)
    for (std::size_t at = 0; at < characters->size();) {
      const auto step = unicode::utf8_step(*characters, at);
      set.push_back(step.code);
      at += step.length;
    }
  const auto goes = [&](char32_t code) {
    return characters ? std::find(set.begin(), set.end(), code) != set.end() : is_python_space(code);
  };
  std::size_t begin = 0, end = text.size();
  while (left && begin < end) {
    const auto step = unicode::utf8_step(text, begin);
    if (!goes(step.code)) break;
    begin += step.length;
  }
  while (right && end > begin) {
    auto last = end - 1;
    while (last > begin && (static_cast<unsigned char>(text[last]) & 0xC0U) == 0x80U) --last;
    if (!goes(unicode::utf8_step(text, last).code)) break;
    end = last;
  }
  return std::string(text.substr(begin, end - begin));
}

void split_lines(std::string_view text, const std::function<void(std::string_view)>& sink) {
  std::size_t begin = 0;
  for (std::size_t at = 0; at < text.size();) {
    const auto step = unicode::utf8_step(text, at);
    const auto c = step.code;
    const bool ends = (c >= 10 && c <= 13) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
    auto next = at + step.length;
    if (ends) {
      sink(text.substr(begin, at - begin));
      if (c == '\r' && next < text.size() && text[next] == '\n') ++next;
      begin = next;
    }
    at = next;
  }
  if (begin < text.size()) sink(text.substr(begin));
}

}  // namespace tessera::jinja
