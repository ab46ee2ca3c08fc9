// Slices and arithmetic of chat templates.

#include <algorithm>
#include <cmath>

#include "framework/jinja/chat_template_functions.h"
#include "framework/unicode/utf8.h"

namespace tessera::jinja {

namespace {

// The code points [begin, end) of `text`.
std::string_view code_point_range(std::string_view words, std::int64_t begin, std::int64_t end) {
  std::size_t at = 0;
  std::int64_t passed = 0;
  for (; passed < begin && at < words.size(); ++passed) at += unicode::utf8_step(words, at).length;
  const auto first = at;
  for (; passed < end && at < words.size(); ++passed) at += unicode::utf8_step(words, at).length;
  return words.substr(first, at - first);
}

TemplateValue marked_as_safe(TemplateValue made) {
  return TemplateValue(TemplateValue::Safe{*made.get<TemplateValue::Text>()});
}

/// An integer, or a bool as Python counts it.
std::optional<std::int64_t> whole_of(const TemplateValue& v) {
  if (const auto* b = v.get<bool>()) return *b ? 1 : 0;
  return v.get<std::int64_t>() ? std::optional(*v.get<std::int64_t>()) : std::nullopt;
}

/// A number, of which `whole` is whole_of().
std::optional<double> real_of(const TemplateValue& v, const std::optional<std::int64_t>& whole) {
  if (whole) return static_cast<double>(*whole);
  return v.get<double>() ? std::optional(*v.get<double>()) : std::nullopt;
}

/// a ** b; `beyond`: the result has more than 64 bits.
std::int64_t power(std::int64_t a, std::int64_t b, bool& beyond) {
  if (b < 0) throw ConfigError("a negative exponent is not supported");
  if (a == 0 || a == 1 || a == -1) return b == 0 ? 1 : a == -1 && b % 2 == 0 ? 1 : a;
  std::int64_t result = 1;
  for (std::int64_t i = 0; i < b && !beyond; ++i) beyond = __builtin_mul_overflow(result, a, &result);
  return result;
}

/// + - * ** // % of integers, as Python computes them. `b` is not 0 for the last two.
std::int64_t of_integers(const std::string& sign, std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  bool beyond = false;
  if (sign == "+") {
    beyond = __builtin_add_overflow(a, b, &result);
  } else if (sign == "-") {
    beyond = __builtin_sub_overflow(a, b, &result);
  } else if (sign == "*") {
    beyond = __builtin_mul_overflow(a, b, &result);
  } else if (sign == "**") {
    result = power(a, b, beyond);
  } else if (b == -1) {
    if (sign == "//") beyond = __builtin_sub_overflow(std::int64_t{0}, a, &result);
  } else {
    const auto rest = a % b;
    const bool below = rest != 0 && (rest < 0) != (b < 0);
    result = sign == "%" ? rest + (below ? b : 0) : a / b - (below ? 1 : 0);
  }
  if (beyond) throw ConfigError("an integer beyond 64 bits is not supported");
  return result;
}

}  // namespace

TemplateValue Renderer::slice(const Node& node) {
  const auto object = evaluate(*node.children[0]);
  const auto bound = [&](std::size_t which) -> std::optional<std::int64_t> {
    if (!node.children[which]) return std::nullopt;
    const auto value = evaluate(*node.children[which]);
    if (value.is_none()) return std::nullopt;
    if (const auto* b = value.get<bool>()) return *b ? 1 : 0;
    if (const auto* i = value.get<std::int64_t>()) return *i;
    throw ConfigError("slice indices must be integers");
  };
  const auto given_begin = bound(1), given_end = bound(2), given_step = bound(3);
  if (object.is_undefined()) fail_undefined(object);
  const auto* words = object.text();
  const auto* list = object.list();
  if (!words && (!list || list->type > List::Type::range))
    throw ConfigError(text("slicing a value of type ", type_name(object), " is not supported"));
  reading(object);
  const auto length = static_cast<std::int64_t>(words ? code_points(*words) : list->items.size());
  const auto step = given_step.value_or(1);
  if (step == 0) throw ConfigError("slice step cannot be zero");
  const auto low = step > 0 ? 0 : -1, high = step > 0 ? 0 : -1;
  const auto within = [&](std::optional<std::int64_t> at, std::int64_t usual) {
    if (!at) return usual;
    const auto from_begin = *at < 0 ? *at + length : *at;
    return std::clamp<std::int64_t>(from_begin, low, length + high);
  };
  const auto begin = within(given_begin, step > 0 ? 0 : length - 1);
  const auto end = within(given_end, step > 0 ? length : -1);
  if (words && step == 1) return make_text(std::string(code_point_range(*words, begin, end)));
  if (words) created(static_cast<std::size_t>(length) * sizeof(std::size_t));
  const auto starts = words ? code_point_starts(*words) : std::vector<std::size_t>{};
  std::string piece;
  Values items;
  for (auto i = begin; step > 0 ? i < end : i > end;) {
    const auto at = static_cast<std::size_t>(i);
    if (words) {
      piece += words->substr(starts[at], starts[at + 1] - starts[at]);
    } else {
      items.push_back(list->items[at]);
    }
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return words ? make_text(std::move(piece)) : make_list(std::move(items), list->type);
}

/// As the + of texts and lists; nothing for other operands.
std::optional<TemplateValue> Renderer::sum_of(const TemplateValue& left, const TemplateValue& right) {
  if (left.text() && right.text()) {
    fits(left.text()->size() + right.text()->size());
    if (!left.is_safe() && !right.is_safe()) return make_text(*left.text() + *right.text());
    // As Markup of MarkupSafe, which escapes the other text.
    return marked_as_safe(make_text((left.is_safe() ? *left.text() : escaped(*left.text())) +
                                    (right.is_safe() ? *right.text() : escaped(*right.text()))));
  }
  const auto *one = left.list(), *other = right.list();
  if (!one || !other || one->type != other->type || one->type > List::Type::tuple) return std::nullopt;
  auto items = one->items;
  items.insert(items.end(), other->items.begin(), other->items.end());
  return make_list(std::move(items), one->type);
}

/// As the * of a text or list and a whole number; nothing for other values.
std::optional<TemplateValue> Renderer::repeated(const TemplateValue& value, std::int64_t times) {
  const auto room = [&](std::size_t size) {
    times = size == 0 ? 0 : std::max<std::int64_t>(times, 0);
    if (times > 0 && static_cast<std::int64_t>(size) > limits_.output_bytes / times)
      fits(static_cast<std::size_t>(limits_.output_bytes) + 1);
  };
  if (const auto* words = value.text()) {
    room(words->size());
    std::string all;
    for (std::int64_t i = 0; i < times; ++i) all += *words;
    auto made = make_text(std::move(all));
    return value.is_safe() ? marked_as_safe(std::move(made)) : made;
  }
  const auto* list = value.list();
  if (!list || list->type > List::Type::tuple) return std::nullopt;
  room(list->items.size() * sizeof(TemplateValue));
  Values items;
  for (std::int64_t i = 0; i < times; ++i) items.insert(items.end(), list->items.begin(), list->items.end());
  return make_list(std::move(items), list->type);
}

TemplateValue Renderer::compute(const std::string& sign, const TemplateValue& left, const TemplateValue& right) {
  if (left.is_undefined()) fail_undefined(left);
  if (right.is_undefined()) fail_undefined(right);
  reading(left);
  reading(right);
  const auto a = whole_of(left), b = whole_of(right);
  std::optional<TemplateValue> made;
  if (sign == "+")
    made = sum_of(left, right);
  else if (sign == "*" && b)
    made = repeated(left, *b);
  if (sign == "*" && a && !made) made = repeated(right, *a);
  if (made) return *std::move(made);
  const auto x = real_of(left, a), y = real_of(right, b);
  if (!x || !y) {
    const bool python = !(sign == "%" && left.text()) && !(sign == "*" && (left.list() || right.list()));
    throw ConfigError(text("the operator ", sign, python ? " does not take " : " is not supported with ",
                           type_name(left), " and ", type_name(right)));
  }
  if (sign != "+" && sign != "-" && sign != "*" && sign != "**" && *y == 0) throw ConfigError("division by zero");
  if (a && b && sign != "/") return TemplateValue(of_integers(sign, *a, *b));
  if (sign == "+") return TemplateValue(*x + *y);
  if (sign == "-") return TemplateValue(*x - *y);
  if (sign == "*") return TemplateValue(*x * *y);
  constexpr std::int64_t exact = 1LL << 53U;  // Python divides larger integers with one rounding
  if (sign == "/" && !(a && std::abs(static_cast<double>(*a)) > exact) &&
      !(b && std::abs(static_cast<double>(*b)) > exact))
    return TemplateValue(*x / *y);
  throw ConfigError(text("the operator ", sign, " is not supported with these numbers"));
}

}  // namespace tessera::jinja
