// Filters and tests of chat templates: Jinja 3.1's, and Transformers' tojson.

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>

#include "framework/jinja/chat_template_functions.h"
#include "framework/unicode/utf8.h"

namespace tessera::jinja {
namespace {

constexpr std::array<std::string_view, 38> filters = {
    "sort", "dictsort", "unique",     "min",     "max",    "sum",     "float",  "round",      "center",     "escape",
    "e",    "trim",     "length",     "count",   "tojson", "upper",   "lower",  "capitalize", "title",      "default",
    "d",    "join",     "first",      "last",    "list",   "map",     "select", "reject",     "selectattr", "string",
    "safe", "indent",   "rejectattr", "replace", "items",  "reverse", "abs",    "int"};
constexpr std::array<std::string_view, 31> tests = {
    "defined", "undefined", "none",    "string", "mapping", "iterable", "sequence", "number",
    "integer", "float",     "boolean", "true",   "false",   "callable", "odd",      "even",
    "in",      "eq",        "equalto", "==",     "ne",      "!=",       "lt",       "lessthan",
    "<",       "le",        "<=",      "gt",     ">",       "ge",       ">="};
constexpr std::array<std::string_view, 5> longer_tests = {"greaterthan", "divisibleby", "sameas", "upper", "lower"};

template <class Names>
bool holds(const Names& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// As in Jinja, a false value such as None gives no items, whatever the arguments are.
TemplateValue mapped(Renderer& renderer, const TemplateValue& value, const Arguments& arguments) {
  if (!truth(value)) return renderer.make_list({}, List::Type::generator);
  std::function<TemplateValue(const TemplateValue&)> change;
  const auto& positional = arguments.positional;
  if (positional.empty()) {
    const Given given("map", arguments, {"attribute", "default"});
    const auto* path = given.get("attribute");
    if (!path) throw ConfigError("map requires a filter argument");
    const auto* otherwise = given.set("default");
    change = [&renderer, path, otherwise](const TemplateValue& one) {
      return by_path(renderer, one, *path, otherwise);
    };
  } else {
    if (!positional[0].text() || !is_filter(*positional[0].text()))
      throw ConfigError(text("map: the filter ", str(positional[0]), " is not supported"));
    Arguments rest;
    rest.positional.assign(positional.begin() + 1, positional.end());
    rest.named = arguments.named;
    change = [&renderer, name = *positional[0].text(), rest](const TemplateValue& one) {
      return renderer.filter(name, one, rest);
    };
  }
  Values items;
  for (const auto& one : renderer.iterate(value)) items.push_back(change(one));
  return renderer.make_list(std::move(items), List::Type::generator);
}

// select, reject, selectattr, rejectattr. A false value gives no items, as for map.
TemplateValue selected(Renderer& renderer, const std::string& name, const TemplateValue& value,
                       const Arguments& arguments) {
  if (!truth(value)) return renderer.make_list({}, List::Type::generator);
  const bool by_attribute = name.find("attr") != std::string::npos, keep = name.rfind("select", 0) == 0;
  const auto& positional = arguments.positional;
  const std::size_t first = by_attribute ? 1 : 0;
  if (!arguments.named.empty()) throw ConfigError(text(name, ": arguments with names are not supported"));
  if (positional.size() < first) throw ConfigError("Missing parameter for attribute name");
  std::string test;
  Values rest;
  if (positional.size() > first) {
    if (!positional[first].text() || !is_test(*positional[first].text()))
      throw ConfigError(text(name, ": the test ", str(positional[first]), " is not supported"));
    test = *positional[first].text();
    rest.assign(positional.begin() + static_cast<std::ptrdiff_t>(first) + 1, positional.end());
  }
  Values items;
  for (const auto& one : renderer.iterate(value)) {
    const auto seen = by_attribute ? by_path(renderer, one, positional[0]) : one;
    if ((test.empty() ? truth(seen) : renderer.test(test, seen, rest)) == keep) items.push_back(one);
  }
  return renderer.make_list(std::move(items), List::Type::generator);
}

std::string indented(const std::string& words, const Given& given, const Renderer& renderer) {
  const auto* width = given.get("width");
  const auto by =
      width && width->text()
          ? *width->text()
          : std::string(static_cast<std::size_t>(std::clamp<std::int64_t>(given.integer("width", 4), 0, 1000)), ' ');
  const bool blank = given.flag("blank", false);
  std::string out = given.flag("first", false) ? by : "";
  bool first = true;
  split_lines(words + "\n", [&](std::string_view line) {
    renderer.fits(out.size() + by.size() + line.size());
    const bool begins = std::exchange(first, false);
    if (!begins) out += "\n";
    if (!begins && (blank || !line.empty())) out += by;
    out += line;
  });
  return out;
}

// Jinja's title differs from Python's: words begin after white space, hyphens and opening brackets.
std::string filter_title(const std::string& words) {
  auto out = lower(words);
  for (std::size_t i = 0; i < out.size(); ++i) {
    static const std::string_view before = "-({[< \t\n\v\f\r\x1C\x1D\x1E\x1F";
    if (i == 0 || before.find(out[i - 1]) != std::string_view::npos) out[i] = upper(out.substr(i, 1))[0];
  }
  return out;
}

// The arguments of Python's json.dumps; that of Jinja alone escapes HTML and sorts keys, but Transformers replaces it.
JsonStyle json_style(Renderer& renderer, const Given& given) {
  JsonStyle style;
  style.ensure_ascii = given.flag("ensure_ascii", false);
  style.sort_keys = given.flag("sort_keys", false);
  if (const auto* indent = given.set("indent")) {
    const auto blanks = indent->text() ? 0 : std::max<std::int64_t>(given.integer("indent", 0), 0);
    renderer.fits(static_cast<std::size_t>(blanks));
    style.indent = indent->text() ? *indent->text() : std::string(static_cast<std::size_t>(blanks), ' ');
    style.between_items = ",";
  }
  if (const auto* separators = given.set("separators")) {
    const auto both = renderer.iterate(*separators);
    if (both.size() != 2 || !both[0].text() || !both[1].text())
      throw ConfigError("tojson: separators must be two strings, such as (',', ':')");
    style.between_items = *both[0].text();
    style.behind_key = *both[1].text();
  }
  return style;
}

TemplateValue json(Renderer& renderer, const TemplateValue& value, const Arguments& arguments) {
  const Given given("tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
  return renderer.make_text(to_json(value, json_style(renderer, given), renderer.longest()));
}

const std::string continuation_bytes = [] {
  std::string all;
  for (int byte = 0x80; byte < 0xC0; ++byte) all += static_cast<char>(byte);
  return all;
}();

TemplateValue end_of(Renderer& renderer, const TemplateValue& value, bool first) {
  auto* list = value.list();
  if (list && list->type == List::Type::generator) {
    if (!first) throw ConfigError("'generator' object is not reversible");
    if (list->items.empty()) return TemplateValue::undefined("No first item, sequence was empty.");
    auto one = list->items.front();
    list->items.erase(list->items.begin());
    return one;
  }
  if (const auto* words = value.text(); words && !words->empty()) {
    const auto last = value.text()->find_last_not_of(continuation_bytes);
    return renderer.make_part(first ? words->substr(0, unicode::utf8_step(*words, 0).length) : words->substr(last));
  }
  const auto items = renderer.iterate(value);
  if (items.empty())
    return TemplateValue::undefined(first ? "No first item, sequence was empty." : "No last item, sequence was empty.");
  return first ? items.front() : items.back();
}

std::int64_t length(const TemplateValue& value) {
  if (value.is_undefined()) return 0;
  if (const auto* words = value.text()) return static_cast<std::int64_t>(code_points(*words));
  if (const auto* dict = value.dict()) return static_cast<std::int64_t>(dict->items.size());
  const auto* list = value.list();
  if (!list || list->type == List::Type::generator)
    throw ConfigError(text("object of type '", type_name(value), "' has no len()"));
  return static_cast<std::int64_t>(list->items.size());
}

TemplateValue joined(Renderer& renderer, const TemplateValue& value, const Arguments& arguments) {
  const Given given("join", arguments, {"d", "attribute"});
  const auto between = given.get("d") ? str(*given.get("d")) : "";
  std::string out;
  bool first = true;
  for (const auto& one : renderer.iterate(value)) {
    if (!std::exchange(first, false)) out += between;
    renderer.fits(out.size());
    const auto part = given.set("attribute") ? by_path(renderer, one, *given.get("attribute")) : one;
    renderer.reading(part);
    out += str(part);
    renderer.fits(out.size());
  }
  return renderer.make_text(std::move(out));
}

TemplateValue reversed(Renderer& renderer, const TemplateValue& value) {
  if (const auto* words = value.text()) {
    std::string out;
    for (auto end = words->size(); end > 0;) {
      const auto begin = words->find_last_not_of(continuation_bytes, end - 1);
      out.append(*words, begin, end - begin);
      end = begin;
    }
    return renderer.make_text(std::move(out));
  }
  auto items = renderer.iterate(value);
  std::reverse(items.begin(), items.end());
  const bool generator = value.list() && value.list()->type == List::Type::generator;
  return renderer.make_list(std::move(items), generator ? List::Type::list : List::Type::generator);
}

}  // namespace

TemplateValue by_path(Renderer& renderer, TemplateValue value, const TemplateValue& path,
                      const TemplateValue* otherwise) {
  const auto step = [&](const TemplateValue& part) {
    value = renderer.item(value, part);
    if (otherwise && value.is_undefined()) value = *otherwise;
  };
  if (!path.text()) {
    step(path);
    return value;
  }
  const auto& words = *path.text();
  for (std::size_t begin = 0; begin <= words.size();) {
    const auto end = std::min(words.find('.', begin), words.size());
    const auto part = words.substr(begin, end - begin);
    const bool digits = !part.empty() && part.size() < 18 && part.find_first_not_of("0123456789") == std::string::npos;
    step(digits ? TemplateValue(std::int64_t{std::stoll(part)}) : TemplateValue::of(part));
    begin = end + 1;
  }
  return value;
}

bool is_filter(std::string_view name) { return holds(filters, name); }
bool is_test(std::string_view name) { return holds(tests, name) || holds(longer_tests, name); }

TemplateValue Renderer::filter(const std::string& name, const TemplateValue& value, const Arguments& arguments) {
  reading(value);
  if (name == "safe" && arguments.positional.empty() && arguments.named.empty()) {
    if (value.is_safe()) return value;
    const auto made = value.text() ? value : make_text(str(value));
    return TemplateValue(TemplateValue::Safe{*made.get<TemplateValue::Text>()});
  }
  static const std::array<std::string_view, 7> marking = {"trim",   "upper",   "lower", "capitalize",
                                                          "indent", "reverse", "first"};
  if (value.is_safe() && (holds(marking, name) || name == "last"))
    throw ConfigError(text("the filter ", name, " of a text marked as safe is not supported; apply safe last"));
  if (name == "default" || name == "d") {
    const Given given(name, arguments, {"default_value", "boolean"});
    if (!value.is_undefined() && !(given.flag("boolean", false) && !truth(value))) return value;
    return given.get("default_value") ? *given.get("default_value") : TemplateValue::of("");
  }
  if (name == "tojson") return json(*this, value, arguments);
  if (name == "join") return joined(*this, value, arguments);
  if (name == "map") return mapped(*this, value, arguments);
  if (name.rfind("select", 0) == 0 || name.rfind("reject", 0) == 0) return selected(*this, name, value, arguments);
  if (name == "trim") {
    const Given given(name, arguments, {"chars"});
    return make_text(strip(str(value), true, true, given.set("chars") ? &given.text("chars") : nullptr));
  }
  if (name == "replace") {
    const Given given(name, arguments, {"old", "new", "count"});
    if (!given.get("old") || !given.get("new")) throw ConfigError("replace needs two texts");
    const auto count = given.set("count") ? given.integer("count", -1) : -1;
    return make_text(replaced(str(value), str(*given.get("old")), str(*given.get("new")), count, limits_.output_bytes));
  }
  if (name == "indent") {
    const Given given(name, arguments, {"width", "first", "blank"});
    if (!value.text()) throw ConfigError(text("indent of ", type_name(value), " is not supported"));
    return make_text(indented(*value.text(), given, *this));
  }
  if (auto made = aggregate_filter(*this, name, value, arguments)) return *std::move(made);
  if (name == "center") {
    const Given given(name, arguments, {"width"});
    return make_text(padded(*this, str(value), given.integer("width", 80), " ", true, true));
  }
  const Given none(name, arguments, {});
  if (name == "escape" || name == "e") {
    if (value.is_safe()) return value;
    return TemplateValue(TemplateValue::Safe{*make_text(escaped(str(value))).get<TemplateValue::Text>()});
  }
  if (name == "length" || name == "count") return TemplateValue(length(value));
  if (name == "upper") return make_text(upper(str(value)));
  if (name == "lower") return make_text(lower(str(value)));
  if (name == "capitalize") return make_text(capitalized(str(value)));
  if (name == "title") return make_text(filter_title(str(value)));
  if (name == "string") return value.text() ? value : make_text(str(value));
  if (name == "first" || name == "last") return end_of(*this, value, name == "first");
  if (name == "list") return make_list(iterate(value));
  if (name == "reverse") return reversed(*this, value);
  if (name == "items") {
    if (value.is_undefined()) return make_list({}, List::Type::generator);
    if (!value.dict()) throw ConfigError("Can only get item pairs from a mapping.");
    auto view = method(value, "items", {});
    return make_list(iterate(view), List::Type::generator);
  }
  if (name == "abs") {
    if (const auto* d = value.get<double>()) return TemplateValue(std::abs(*d));
    const auto* i = value.get<std::int64_t>();
    if (!i || *i == INT64_MIN) throw ConfigError(text("abs of this ", type_name(value), " is not supported"));
    return TemplateValue(*i < 0 ? -*i : *i);
  }
  throw ConfigError(text("the filter ", name, " takes no arguments"));  // safe
}

bool Renderer::test(const std::string& name, const TemplateValue& value, const Values& arguments) {
  reading(value);
  for (const auto& one : arguments) reading(one);
  const auto argument = [&]() -> const TemplateValue& {
    if (arguments.size() != 1) throw ConfigError(text("the test ", name, " needs one argument"));
    return arguments[0];
  };
  const auto whole = [&](const TemplateValue& v) {
    if (v.is_undefined()) fail_undefined(v);
    if (const auto* b = v.get<bool>()) return std::int64_t{*b ? 1 : 0};
    if (!v.get<std::int64_t>()) throw ConfigError(text("the test ", name, " of ", type_name(v), " is not supported"));
    return *v.get<std::int64_t>();
  };
  if (name == "in") return contains(argument(), value);
  if (name == "eq" || name == "equalto" || name == "==") return equal(value, argument());
  if (name == "ne" || name == "!=") return !equal(value, argument());
  if (name == "lt" || name == "lessthan" || name == "<") return order(value, argument()) == -1;
  if (name == "le" || name == "<=") return order(value, argument()) <= 0;
  if (name == "gt" || name == "greaterthan" || name == ">") return order(value, argument()) == 1;
  if (name == "ge" || name == ">=") return order(value, argument()) == 0 || order(value, argument()) == 1;
  if (name == "divisibleby") {
    const auto divisor = whole(argument());
    if (divisor == 0) throw ConfigError("division by zero");
    return divisor == -1 || whole(value) % divisor == 0;
  }
  if (name == "sameas") {
    const auto& other = argument();
    const auto is_single = [](const TemplateValue& v) { return v.is_none() || v.get<bool>(); };
    if (!is_single(value) && !is_single(other))
      throw ConfigError("the test sameas is not supported with values other than none, true and false");
    return value.data.index() == other.data.index() && equal(value, other);
  }
  if (!arguments.empty()) throw ConfigError(text("the test ", name, " takes no argument"));
  if (name == "upper" || name == "lower") return has_case(str(value), name == "upper");
  const auto* list = value.list();
  const bool generator = list && list->type == List::Type::generator;
  if (name == "defined") return !value.is_undefined();
  if (name == "undefined") return value.is_undefined();
  if (name == "none") return value.is_none();
  if (name == "string") return value.text() != nullptr;
  if (name == "mapping") return value.dict() != nullptr;
  if (name == "iterable") return value.is_undefined() || value.text() || value.dict() || list;
  if (name == "sequence")
    return value.is_undefined() || value.text() || value.dict() || (list && list->type <= List::Type::range);
  if (name == "integer") return value.get<std::int64_t>() != nullptr;
  if (name == "float") return value.get<double>() != nullptr;
  if (name == "boolean") return value.get<bool>() != nullptr;
  if (name == "number") return value.get<bool>() || value.get<std::int64_t>() || value.get<double>();
  if (name == "true") return value.get<bool>() && *value.get<bool>();
  if (name == "false") return value.get<bool>() && !*value.get<bool>();
  if (name == "odd") return whole(value) % 2 != 0;
  if (name == "even") return whole(value) % 2 == 0;
  if (generator || value.get<std::shared_ptr<Loop>>())
    throw ConfigError(text("the test callable of ", type_name(value), " is not supported"));
  return value.is_undefined() || value.get<std::shared_ptr<const Function>>() != nullptr;
}

}  // namespace tessera::jinja
