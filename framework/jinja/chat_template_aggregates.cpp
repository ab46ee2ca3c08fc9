// Filters of chat templates that order, compare or add values, and that make numbers of texts.

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "framework/jinja/chat_template_functions.h"

namespace tessera::jinja {
namespace {

using Item = std::pair<TemplateValue, TemplateValue>;  // what is compared, and the value

// Jinja's ignore_case.
TemplateValue without_case(const TemplateValue& value) {
  return value.text() ? TemplateValue::of(lower(*value.text())) : value;
}

// The key that a value is compared by: itself, or its `attribute`.
TemplateValue key_of(Renderer& renderer, const TemplateValue& value, const Given& given) {
  const auto* attribute = given.set("attribute");
  if (attribute && attribute->text() && attribute->text()->find(',') != std::string::npos)
    throw ConfigError("several attributes to compare by are not supported");
  const auto key = attribute ? by_path(renderer, value, *attribute) : value;
  return given.flag("case_sensitive", false) ? key : without_case(key);
}

std::vector<Item> with_keys(Renderer& renderer, const TemplateValue& value, const Given& given) {
  std::vector<Item> items;
  for (auto& one : renderer.iterate(value)) items.emplace_back(key_of(renderer, one, given), one);
  return items;
}

// Python's sort keeps the order of equal items, also where it is reversed.
void sort_items(Renderer& renderer, std::vector<Item>& items, bool reverse) {
  std::stable_sort(items.begin(), items.end(), [&](const Item& a, const Item& b) {
    renderer.reading(a.first);
    renderer.step();
    return renderer.order(reverse ? b.first : a.first, reverse ? a.first : b.first) == -1;
  });
}

TemplateValue values_of(Renderer& renderer, const std::vector<Item>& items, List::Type type = List::Type::list) {
  Values values;
  for (const auto& item : items) values.push_back(item.second);
  return renderer.make_list(std::move(values), type);
}

TemplateValue sorted(Renderer& renderer, const TemplateValue& value, const Arguments& arguments) {
  const Given given("sort", arguments, {"reverse", "case_sensitive", "attribute"});
  auto items = with_keys(renderer, value, given);
  sort_items(renderer, items, given.flag("reverse", false));
  return values_of(renderer, items);
}

TemplateValue sorted_dict(Renderer& renderer, const TemplateValue& value, const Arguments& arguments) {
  const Given given("dictsort", arguments, {"case_sensitive", "by", "reverse"});
  const std::string by = given.get("by") ? given.text("by") : "key";
  if (by != "key" && by != "value") throw ConfigError("You can only sort by either 'key' or 'value'");
  if (!value.dict()) throw ConfigError(text("dictsort needs a dictionary, not ", type_name(value)));
  std::vector<Item> items;
  for (const auto& [key, one] : value.dict()->items) {
    const auto& compared = by == "key" ? key : one;
    items.emplace_back(given.flag("case_sensitive", false) ? compared : without_case(compared),
                       renderer.make_list({key, one}, List::Type::tuple));
  }
  sort_items(renderer, items, given.flag("reverse", false));
  return values_of(renderer, items);
}

TemplateValue unique(Renderer& renderer, const TemplateValue& value, const Arguments& arguments) {
  const Given given("unique", arguments, {"case_sensitive", "attribute"});
  std::vector<Item> kept;
  for (auto& item : with_keys(renderer, value, given)) {
    renderer.step(1 + static_cast<std::int64_t>(kept.size()) / 8);
    if (item.first.list() || item.first.dict())
      throw ConfigError(text("unhashable type: '", type_name(item.first), "'"));
    if (std::none_of(kept.begin(), kept.end(), [&](const Item& one) { return equal(one.first, item.first); }))
      kept.push_back(std::move(item));
  }
  return values_of(renderer, kept, List::Type::generator);
}

// The first of the smallest or largest values.
TemplateValue extreme(Renderer& renderer, const TemplateValue& value, const Arguments& arguments, bool largest) {
  const Given given(largest ? "max" : "min", arguments, {"case_sensitive", "attribute"});
  const auto items = with_keys(renderer, value, given);
  if (items.empty()) return TemplateValue::undefined("No aggregated item, sequence was empty.");
  const auto* best = &items.front();
  for (const auto& item : items)
    if (renderer.order(item.first, best->first) == (largest ? 1 : -1)) best = &item;
  return best->second;
}

TemplateValue summed(Renderer& renderer, const TemplateValue& value, const Arguments& arguments) {
  const Given given("sum", arguments, {"attribute", "start"});
  auto total = given.get("start") ? *given.get("start") : TemplateValue(std::int64_t{0});
  if (total.text()) throw ConfigError("sum() can't sum strings [use ''.join(seq) instead]");
  const auto* attribute = given.set("attribute");
  for (const auto& one : renderer.iterate(value))
    total = renderer.compute("+", total, attribute ? by_path(renderer, one, *attribute) : one);
  return total;
}

// The number in a text as Python's float() reads it, as far as it is written in decimal digits.
std::optional<double> real_of(std::string_view words) {
  const auto digit = words.find_first_of("0123456789.");
  if (digit > 1 || (digit == 1 && words[0] != '-')) return std::nullopt;
  double number = 0;
  const auto end = words.data() + words.size();
  const auto read = std::from_chars(words.data(), end, number);
  return read.ec == std::errc() && read.ptr == end ? std::optional(number) : std::nullopt;
}

// What Python's float() reads, but this does not.
bool is_special_number(const std::string& words) {
  auto rest = lower(words);
  if (!rest.empty() && (rest[0] == '+' || rest[0] == '-')) rest.erase(0, 1);
  if (rest == "nan" || rest == "inf" || rest == "infinity") return true;
  return !rest.empty() && rest[0] >= '0' && rest[0] <= '9' && rest.find('_') != std::string::npos;
}

std::string trimmed(const std::string& name, const TemplateValue& value) {
  auto words = strip(*value.text(), true, true);
  if (!std::all_of(words.begin(), words.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; }) ||
      is_special_number(words))
    throw ConfigError(text(name, " of '", words, "' is not supported"));
  if (words.size() > 1 && words[0] == '+' && words[1] != '-' && words[1] != '+') words.erase(0, 1);
  return words;
}

std::optional<double> number_of(const std::string& name, const TemplateValue& value) {
  if (const auto* b = value.get<bool>()) return *b ? 1 : 0;
  if (const auto* i = value.get<std::int64_t>()) return static_cast<double>(*i);
  if (const auto* d = value.get<double>()) return *d;
  if (!value.text()) return std::nullopt;
  return real_of(trimmed(name, value));
}

TemplateValue to_real(const TemplateValue& value, const Arguments& arguments) {
  const Given given("float", arguments, {"default"});
  if (const auto number = number_of("float", value)) return TemplateValue(*number);
  if (value.is_undefined()) fail_undefined(value);
  return given.get("default") ? *given.get("default") : TemplateValue(0.0);
}

TemplateValue to_integer(const TemplateValue& value, const Arguments& arguments) {
  const Given given("int", arguments, {"default", "base"});
  if (given.integer("base", 10) != 10) throw ConfigError("int: a base other than 10 is not supported");
  if (value.get<std::int64_t>()) return value;
  if (value.text()) {
    const auto words = trimmed("int", value);
    std::int64_t whole = 0;
    const auto read = std::from_chars(words.data(), words.data() + words.size(), whole);
    if (read.ec == std::errc::result_out_of_range) throw ConfigError("an integer beyond 64 bits is not supported");
    if (read.ec == std::errc() && read.ptr == words.data() + words.size()) return TemplateValue(whole);
  }
  if (value.is_undefined()) fail_undefined(value);
  const auto number = number_of("int", value);
  if (!number || std::isnan(*number))
    return given.get("default") ? *given.get("default") : TemplateValue(std::int64_t{0});
  if (std::abs(*number) >= 0x1p62) throw ConfigError("an integer beyond 64 bits is not supported");
  return TemplateValue(static_cast<std::int64_t>(*number));
}

TemplateValue rounded(const TemplateValue& value, const Arguments& arguments) {
  const Given given("round", arguments, {"precision", "method"});
  const auto precision = given.integer("precision", 0);
  const std::string method = given.get("method") ? given.text("method") : "common";
  const auto* real = value.get<double>();
  if (!real && !value.get<std::int64_t>()) throw ConfigError(text("round of ", type_name(value), " is not supported"));
  if (precision < 0 || precision > 15 || (real && !(std::abs(*real) < 1e15)))
    throw ConfigError("round with this number or precision is not supported");
  if (method == "common" && !real) return value;
  const double number = real ? *real : static_cast<double>(*value.get<std::int64_t>());
  const double scale = std::pow(10.0, static_cast<double>(precision));
  if (method == "ceil") return TemplateValue(std::ceil(number * scale) / scale);
  if (method == "floor") return TemplateValue(std::floor(number * scale) / scale);
  if (method != "common") throw ConfigError("method must be common, ceil or floor");
  std::array<char, 64> digits{};  // printf rounds the exact value, halves to even, as Python does
  std::snprintf(digits.data(), digits.size(), "%.*f", static_cast<int>(precision), number);
  return TemplateValue(std::strtod(digits.data(), nullptr));
}

}  // namespace

std::optional<TemplateValue> aggregate_filter(Renderer& renderer, const std::string& name, const TemplateValue& value,
                                              const Arguments& arguments) {
  if (name == "sort") return sorted(renderer, value, arguments);
  if (name == "dictsort") return sorted_dict(renderer, value, arguments);
  if (name == "unique") return unique(renderer, value, arguments);
  if (name == "min" || name == "max") return extreme(renderer, value, arguments, name == "max");
  if (name == "sum") return summed(renderer, value, arguments);
  if (name == "int") return to_integer(value, arguments);
  if (name == "float") return to_real(value, arguments);
  if (name == "round") return rounded(value, arguments);
  return std::nullopt;
}

}  // namespace tessera::jinja
