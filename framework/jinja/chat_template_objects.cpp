// Attributes, items, methods and global functions of chat templates.

#include <algorithm>
#include <array>
#include <ctime>
#include <functional>

#include "framework/jinja/chat_template_functions.h"
#include "framework/unicode/utf8.h"

namespace tessera::jinja {
namespace {

template <std::size_t N>
bool is_one_of(const std::string& name, const std::array<std::string_view, N>& names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

constexpr std::array<std::string_view, 36> string_methods = {
    "strip",        "lstrip",  "rstrip",     "split",   "rsplit",    "splitlines", "startswith", "endswith",
    "upper",        "lower",   "capitalize", "replace", "join",      "find",       "count",      "removeprefix",
    "removesuffix", "title",   "index",      "isspace", "partition", "rfind",      "rpartition", "rindex",
    "center",       "ljust",   "rjust",      "zfill",   "isalnum",   "isalpha",    "isascii",    "isdecimal",
    "isdigit",      "islower", "isnumeric",  "isupper"};
constexpr std::array<std::string_view, 11> other_string_methods = {
    "casefold",    "encode",  "expandtabs", "format",   "format_map", "isidentifier",
    "isprintable", "istitle", "maketrans",  "swapcase", "translate"};
constexpr std::array<std::string_view, 6> methods_of_safe = {"startswith", "endswith", "find",
                                                             "index",      "count",    "isspace"};
constexpr std::array<std::string_view, 4> dict_methods = {"get", "items", "keys", "values"};
constexpr std::array<std::string_view, 7> other_dict_methods = {"clear",   "copy",       "fromkeys", "pop",
                                                                "popitem", "setdefault", "update"};
constexpr std::array<std::string_view, 9> other_list_methods = {"append", "clear",  "copy",    "extend", "insert",
                                                                "pop",    "remove", "reverse", "sort"};

// Python's split without a separator: at white space, which is not kept.
void split_at_space(std::string_view words, std::int64_t most, const std::function<void(std::string_view)>& sink) {
  const auto skip = [&words](std::size_t at, bool space) {
    while (at < words.size()) {
      const auto step = unicode::utf8_step(words, at);
      if (is_python_space(step.code) != space) break;
      at += step.length;
    }
    return at;
  };
  for (auto begin = skip(0, true); begin < words.size(); --most) {
    const auto end = most == 0 ? words.size() : skip(begin, false);
    sink(words.substr(begin, end - begin));
    begin = skip(end, true);
  }
}

void split(std::string_view words, const std::string* separator, std::int64_t most,
           const std::function<void(std::string_view)>& sink) {
  if (!separator) return split_at_space(words, most, sink);
  if (separator->empty()) throw ConfigError("empty separator");
  std::size_t at = 0;
  for (auto found = words.find(*separator); found != std::string_view::npos && most != 0;
       found = words.find(*separator, at)) {
    sink(words.substr(at, found - at));
    at = found + separator->size();
    if (most > 0) --most;
  }
  sink(words.substr(at));
}

// The last part comes first.
void split_from_right(std::string_view words, const std::string& separator, std::int64_t most,
                      const std::function<void(std::string_view)>& sink) {
  auto end = words.size();
  for (; most != 0; --most) {
    const auto found = end < separator.size() ? std::string_view::npos : words.rfind(separator, end - separator.size());
    if (found == std::string_view::npos) break;
    sink(words.substr(found + separator.size(), end - found - separator.size()));
    end = found;
  }
  sink(words.substr(0, end));
}

}  // namespace

bool has_method(const TemplateValue& value, const std::string& name) {
  const auto refuse = [&]() -> bool {
    throw ConfigError(text("the method ", name, " of ", type_name(value), " is not supported"));
  };
  if (name.rfind("__", 0) == 0) return refuse();
  if (value.text()) {
    if (is_one_of(name, string_methods)) return true;
    return is_one_of(name, other_string_methods) ? refuse() : false;
  }
  if (value.dict()) {
    if (is_one_of(name, dict_methods)) return true;
    return is_one_of(name, other_dict_methods) ? refuse() : false;
  }
  if (const auto* list = value.list()) {
    if (list->type <= List::Type::range && (name == "count" || name == "index")) return true;
    return list->type != List::Type::list || is_one_of(name, other_list_methods) ? refuse() : false;
  }
  if (value.get<bool>() || value.get<std::int64_t>() || value.get<double>()) return refuse();
  return false;
}

namespace {
TemplateValue loop_attribute(Loop& loop, const std::string& name) {
  const auto index = static_cast<std::int64_t>(loop.index);
  if (name == "index") return TemplateValue(index + 1);
  if (name == "index0") return TemplateValue(index);
  if (name == "revindex") return TemplateValue(loop.length() - index);
  if (name == "revindex0") return TemplateValue(loop.length() - index - 1);
  if (name == "first") return TemplateValue(index == 0);
  if (name == "last") return TemplateValue(!loop.has(loop.index + 1));
  if (name == "length") return TemplateValue(loop.length());
  if (name == "previtem")
    return index > 0 ? loop.items[loop.index - 1] : TemplateValue::undefined("there is no previous item");
  if (name == "nextitem")
    return loop.has(loop.index + 1) ? loop.items[loop.index + 1] : TemplateValue::undefined("there is no next item");
  throw ConfigError(text("loop.", name, " is not supported"));
}
}  // namespace

TemplateValue Renderer::attribute(const TemplateValue& object, const std::string& name) {
  if (object.is_undefined()) fail_undefined(object);
  if (const auto* space = object.get<std::shared_ptr<Namespace>>()) {
    if (name.rfind("__", 0) == 0) throw ConfigError(text("the attribute ", name, " is not supported"));
    if (const auto* found = (*space)->find(name)) return *found;
  } else if (const auto* loop = object.get<std::shared_ptr<Loop>>()) {
    return loop_attribute(**loop, name);
  } else if (has_method(object, name)) {
    Function function;
    function.name = name;
    function.self = std::make_shared<const TemplateValue>(object);
    return TemplateValue(std::make_shared<const Function>(std::move(function)));
  } else if (const auto* dict = object.dict()) {
    if (const auto* found = find_item(*dict, TemplateValue::of(name))) return *found;
  } else if (object.get<std::shared_ptr<const Function>>()) {
    throw ConfigError(text("the attribute ", name, " of a function is not supported"));
  }
  return TemplateValue::undefined(text("'", type_name(object), " object' has no attribute '", name, "'"));
}

namespace {
TemplateValue character(Renderer& renderer, std::string_view words, std::int64_t index) {
  std::size_t at = 0;
  for (; index > 0; --index) at += unicode::utf8_step(words, at).length;
  return renderer.make_part(words.substr(at, unicode::utf8_step(words, at).length));
}
}  // namespace

const TemplateValue* Renderer::find_item(const Dict& dict, const TemplateValue& key) {
  reading(key);
  step(static_cast<std::int64_t>(dict.items.size()) / 8);
  return dict.find(key);
}

TemplateValue Renderer::item(const TemplateValue& object, const TemplateValue& index) {
  if (object.is_undefined()) fail_undefined(object);
  if (const auto* dict = object.dict()) {
    if (const auto* found = find_item(*dict, index)) return *found;
  } else if (index.get<std::int64_t>() || index.get<bool>()) {
    auto at = index.get<bool>() ? static_cast<std::int64_t>(*index.get<bool>()) : *index.get<std::int64_t>();
    const auto* list = object.list();
    const auto* words = object.text();
    if (object.is_safe()) throw ConfigError("an item of a text marked as safe is not supported");
    if (words) reading(object);
    const bool indexed = list && list->type <= List::Type::range;
    const auto length = static_cast<std::int64_t>(words ? code_points(*words) : indexed ? list->items.size() : 0);
    if (at < 0) at += length;
    if (at >= 0 && at < length) return words ? character(*this, *words, at) : list->items[static_cast<std::size_t>(at)];
  }
  if (index.text()) return attribute(object, *index.text());
  return TemplateValue::undefined(text("'", type_name(object), " object' has no such element"));
}

Values Renderer::iterate(const TemplateValue& value) {
  if (value.is_undefined()) return {};
  Values items;
  if (auto* list = value.list()) {
    if (list->type == List::Type::generator) return std::exchange(list->items, {});
    items = list->items;
  } else if (const auto* dict = value.dict()) {
    for (const auto& item : dict->items) items.push_back(item.first);
  } else if (const auto* words = value.text()) {
    for (std::size_t at = 0; at < words->size();) {
      const auto length = unicode::utf8_step(*words, at).length;
      items.push_back(make_part(std::string_view(*words).substr(at, length)));
      at += length;
    }
  } else {
    throw ConfigError(text("'", type_name(value), "' object is not iterable"));
  }
  created(items.size() * sizeof(TemplateValue));
  step(static_cast<std::int64_t>(items.size()) / 8);
  return items;
}

bool Renderer::contains(const TemplateValue& container, const TemplateValue& value) {
  if (container.is_undefined()) return false;
  if (const auto* words = container.text()) {
    if (!value.text()) throw ConfigError(text("'in <string>' requires string as left operand, not ", type_name(value)));
    return words->find(*value.text()) != std::string::npos;
  }
  if (const auto* dict = container.dict()) {
    if (value.list() || value.dict()) throw ConfigError(text("unhashable type: '", type_name(value), "'"));
    return find_item(*dict, value) != nullptr;
  }
  const auto* list = container.list();
  if (!list) throw ConfigError(text("argument of type '", type_name(container), "' is not iterable"));
  reading(container);
  if (list->type == List::Type::generator)
    throw ConfigError("in with a generator is not supported; add the filter list");
  return std::any_of(list->items.begin(), list->items.end(), [&](const auto& one) { return equal(one, value); });
}

int Renderer::order(const TemplateValue& one, const TemplateValue& other) {
  if (one.is_undefined()) fail_undefined(one);
  if (other.is_undefined()) fail_undefined(other);
  const auto sign = [](const auto& a, const auto& b) { return a < b ? -1 : b < a ? 1 : a == b ? 0 : 2; };
  if (one.text() && other.text()) return sign(*one.text(), *other.text());        // bytes have the order of code points
  const auto number = [](const TemplateValue& v) -> std::optional<long double> {  // holds 64-bit integers exactly
    if (const auto* b = v.get<bool>()) return *b ? 1 : 0;
    if (const auto* i = v.get<std::int64_t>()) return static_cast<long double>(*i);
    if (const auto* d = v.get<double>()) return static_cast<long double>(*d);
    return std::nullopt;
  };
  const auto a = number(one), b = number(other);
  if (a && b) return sign(*a, *b);
  throw ConfigError(text("comparing the order of ", type_name(one), " and ", type_name(other), " is not supported"));
}

namespace {

TemplateValue dict_method(Renderer& renderer, const TemplateValue& self, const std::string& name,
                          const Arguments& arguments) {
  const auto& dict = *self.dict();
  if (name == "get") {
    const Given given(name, arguments, {"key", "default"});
    if (!arguments.named.empty()) throw ConfigError("get takes no keyword arguments");
    if (!given.get("key")) throw ConfigError("get expected at least 1 argument, got 0");
    if (const auto* found = renderer.find_item(dict, *given.get("key"))) return *found;
    return given.get("default") ? *given.get("default") : TemplateValue::none();
  }
  const Given none(name, arguments, {});
  Values items;
  for (const auto& [key, value] : dict.items)
    items.push_back(name == "keys"     ? key
                    : name == "values" ? value
                                       : renderer.make_list({key, value}, List::Type::tuple));
  return renderer.make_list(std::move(items), List::Type::view);
}

TemplateValue list_method(const TemplateValue& self, const std::string& name, const Arguments& arguments) {
  const bool limited = name == "index" && self.list()->type != List::Type::range;
  const Given given = limited ? Given(name, arguments, {"value", "start", "stop"}) : Given(name, arguments, {"value"});
  if (!arguments.named.empty()) throw ConfigError(text(name, " takes no keyword arguments"));
  if (!given.get("value")) throw ConfigError(text(name, " needs a value"));
  const auto& items = self.list()->items;
  if (name == "count")
    return TemplateValue(static_cast<std::int64_t>(
        std::count_if(items.begin(), items.end(), [&](const auto& one) { return equal(one, *given.get("value")); })));
  const auto size = static_cast<std::int64_t>(items.size());
  const auto within = [size](std::int64_t at) { return std::clamp<std::int64_t>(at < 0 ? at + size : at, 0, size); };
  const auto stop = within(given.integer("stop", size));
  for (auto i = within(given.integer("start", 0)); i < stop; ++i)
    if (equal(items[static_cast<std::size_t>(i)], *given.get("value"))) return TemplateValue(i);
  throw ConfigError("index: the value is not in the list");
}

TemplateValue split_method(Renderer& renderer, const std::string& words, const std::string& name,
                           const Arguments& arguments) {
  Values parts;
  const auto add_part = [&](std::string_view part) { parts.push_back(renderer.make_part(part)); };
  const Given given(name, arguments, {"sep", "maxsplit"});
  const auto* separator = given.set("sep") ? &given.text("sep") : nullptr;
  const auto most = std::max<std::int64_t>(given.integer("maxsplit", -1), -1);
  if (name == "split" || most < 0) {
    split(words, separator, most, add_part);
    return renderer.make_list(std::move(parts));
  }
  if (!separator || separator->empty()) throw ConfigError("rsplit needs a separator that is not empty");
  split_from_right(words, *separator, most, add_part);
  std::reverse(parts.begin(), parts.end());
  return renderer.make_list(std::move(parts));
}

TemplateValue join_method(Renderer& renderer, const std::string& words, const Arguments& arguments) {
  const Given given("join", arguments, {"items"});
  if (!given.get("items")) throw ConfigError("join needs a list");
  if (given.get("items")->is_undefined()) return renderer.make_text("");
  std::string joined;
  bool first = true;
  for (const auto& part : renderer.iterate(*given.get("items"))) {
    if (!part.text()) throw ConfigError(text("join: expected strings, found ", type_name(part)));
    if (!std::exchange(first, false)) joined += words;
    renderer.fits(joined.size() + part.text()->size());
    joined += *part.text();
  }
  return renderer.make_text(std::move(joined));
}

}  // namespace

TemplateValue Renderer::method(const TemplateValue& self, const std::string& name, const Arguments& arguments) {
  if (!self.dict() || name != "get") reading(self);
  for (const auto& one : arguments.positional) reading(one);
  if (self.is_safe() && !is_one_of(name, methods_of_safe))
    throw ConfigError(text("the method ", name, " of a text marked as safe is not supported"));
  if (self.dict()) return dict_method(*this, self, name, arguments);
  if (self.list()) return list_method(self, name, arguments);
  const auto& words = *self.text();
  if (name == "strip" || name == "lstrip" || name == "rstrip") {
    const Given given(name, arguments, {"chars"});
    const auto* characters = given.set("chars") ? &given.text("chars") : nullptr;
    return make_text(strip(words, name != "rstrip", name != "lstrip", characters));
  }
  if (name == "split" || name == "rsplit") return split_method(*this, words, name, arguments);
  if (auto made = search_method(*this, words, name, arguments)) return *std::move(made);
  if (name == "splitlines") {
    const Given none(name, arguments, {});
    Values lines;
    split_lines(words, [&](std::string_view line) { lines.push_back(make_part(line)); });
    return make_list(std::move(lines));
  }
  if (name == "replace") {
    const Given given(name, arguments, {"old", "new", "count"});
    auto made = replaced(words, given.text("old"), given.text("new"), given.integer("count", -1), limits_.output_bytes);
    return make_text(std::move(made));
  }
  if (name == "join") return join_method(*this, words, arguments);
  if (name == "removeprefix" || name == "removesuffix") {
    const Given given(name, arguments, {"affix"});
    const auto& affix = given.text("affix");
    const bool front = name == "removeprefix";
    if (!has_end(words, *given.get("affix"), front)) return self;
    return make_text(words.substr(front ? affix.size() : 0, words.size() - affix.size()));
  }
  const Given none(name, arguments, {});
  if (name == "isspace") return TemplateValue(!words.empty() && strip(words, true, true).empty());
  if (name == "upper") return make_text(upper(words));
  if (name == "lower") return make_text(lower(words));
  if (name == "title") return make_text(titled(words));
  return make_text(capitalized(words));
}

bool is_global(std::string_view name) {
  for (const std::string_view other : {"cycler", "joiner", "lipsum"})
    if (name == other) throw ConfigError(text("the global function ", name, " is not supported"));
  for (const std::string_view one : {"range", "namespace", "dict", "raise_exception", "strftime_now"})
    if (name == one) return true;
  return false;
}

TemplateValue Renderer::global(const std::string& name, const Arguments& arguments) {
  if (name == "raise_exception") {
    const Given given(name, arguments, {"message"});
    const auto* message = given.get("message");
    throw ConfigError(text("the chat template refuses the conversation: ", message ? str(*message) : ""));
  }
  if (name == "strftime_now") {
    const Given given(name, arguments, {"format"});
    if (!input_.now)
      throw ConfigError(
          "strftime_now is not supported here, because the text would differ from day to day; "
          "write a fixed date into the template");
    const auto now = static_cast<std::time_t>(*input_.now);
    std::tm time = {};
    gmtime_r(&now, &time);
    std::array<char, 4096> out{};
    const auto size = std::strftime(out.data(), out.size(), given.text("format").c_str(), &time);
    return make_text(std::string(out.data(), size));
  }
  if (name == "range") {
    if (!arguments.named.empty() || arguments.positional.empty())
      throw ConfigError("range needs one to three integers");
    const Given given(name, arguments, {"start", "stop", "step"});
    const bool single = arguments.positional.size() == 1;
    const auto begin = single ? 0 : given.integer("start", 0), end = given.integer(single ? "start" : "stop", 0);
    const auto step = given.integer("step", 1);
    if (step == 0) throw ConfigError("range() arg 3 must not be zero");
    Values items;
    for (auto i = begin; step > 0 ? i < end : i > end;) {
      constexpr std::size_t longest = 100000;  // of Jinja's sandbox
      if (items.size() == longest) throw ConfigError(text("Range too big: more than ", longest, " numbers"));
      items.emplace_back(i);
      if (__builtin_add_overflow(i, step, &i)) break;
    }
    return make_list(std::move(items), List::Type::range);
  }
  std::vector<std::pair<TemplateValue, TemplateValue>> items;
  if (arguments.positional.size() > 1) throw ConfigError(text(name, " takes at most one argument without a name"));
  if (!arguments.positional.empty()) {
    const auto* dict = arguments.positional[0].dict();
    if (!dict) throw ConfigError(text(name, " of ", type_name(arguments.positional[0]), " is not supported"));
    items = dict->items;
  }
  for (const auto& [key, value] : arguments.named) items.emplace_back(TemplateValue::of(key), value);
  if (name == "dict") return make_dict(std::move(items));
  auto made = make_namespace();
  for (auto& [key, value] : items) {
    if (!key.text() || key.text()->rfind('_', 0) == 0)
      throw ConfigError("names of attributes of a namespace are strings that do not begin with _");
    (*made.get<std::shared_ptr<Namespace>>())->set(*key.text(), std::move(value));
  }
  return made;
}

}  // namespace tessera::jinja
