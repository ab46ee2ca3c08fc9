// Attributes, items, methods and global functions of chat templates.

#include <algorithm>
#include <array>
#include <ctime>

#include "framework/data/chat_template/chat_template_functions.h"

namespace tessera::data::chat {
namespace {

template <std::size_t N>
bool is_one_of(const std::string& name, const std::array<std::string_view, N>& names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

constexpr std::array<std::string_view, 20> string_methods = {
    "strip",    "lstrip",       "rstrip",       "split",      "rsplit",  "splitlines", "startswith",
    "endswith", "upper",        "lower",        "capitalize", "replace", "join",       "find",
    "count",    "removeprefix", "removesuffix", "title",      "index",   "isspace"};
constexpr std::array<std::string_view, 27> other_string_methods = {
    "casefold",    "center",  "encode",     "expandtabs", "format",       "format_map", "isalnum",
    "isalpha",     "isascii", "isdecimal",  "isdigit",    "isidentifier", "islower",    "isnumeric",
    "isprintable", "istitle", "isupper",    "ljust",      "maketrans",    "partition",  "rfind",
    "rindex",      "rjust",   "rpartition", "swapcase",   "translate",    "zfill"};
constexpr std::array<std::string_view, 4> dict_methods = {"get", "items", "keys", "values"};
constexpr std::array<std::string_view, 7> other_dict_methods = {"clear",   "copy",       "fromkeys", "pop",
                                                                "popitem", "setdefault", "update"};
constexpr std::array<std::string_view, 9> other_list_methods = {"append", "clear",  "copy",    "extend", "insert",
                                                                "pop",    "remove", "reverse", "sort"};

std::vector<std::string> split(const std::string& words, const std::string* separator, std::int64_t most) {
  std::vector<std::string> parts;
  if (separator) {
    if (separator->empty()) throw ConfigError("empty separator");
    std::size_t at = 0;
    for (auto found = words.find(*separator); found != std::string::npos && most != 0;
         found = words.find(*separator, at)) {
      parts.push_back(words.substr(at, found - at));
      at = found + separator->size();
      if (most > 0) --most;
    }
    parts.push_back(words.substr(at));
    return parts;
  }
  auto rest = strip(words, true, false);
  while (!rest.empty()) {
    if (most == 0) {
      parts.push_back(rest);
      break;
    }
    if (most > 0) --most;
    const auto starts = code_point_starts(rest);
    std::size_t i = 0;
    while (i + 1 < starts.size() && !strip(rest.substr(starts[i], starts[i + 1] - starts[i]), true, false).empty()) ++i;
    parts.push_back(rest.substr(0, starts[i]));
    rest = strip(std::string_view(rest).substr(starts[i]), true, false);
  }
  return parts;
}

std::vector<std::string> split_from_right(const std::string& words, const std::string& separator, std::int64_t most) {
  std::vector<std::string> parts;
  auto end = words.size();
  while (most != 0) {
    const auto found = end < separator.size() ? std::string::npos : words.rfind(separator, end - separator.size());
    if (found == std::string::npos) break;
    parts.push_back(words.substr(found + separator.size(), end - found - separator.size()));
    end = found;
    if (most > 0) --most;
  }
  parts.push_back(words.substr(0, end));
  std::reverse(parts.begin(), parts.end());
  return parts;
}

// startswith and endswith take a string or a tuple of strings.
bool has_end(const std::string& words, const TemplateValue& ends, bool front) {
  const auto one = [&](const TemplateValue& end) {
    if (!end.text()) throw ConfigError(text("startswith and endswith need a string, not ", type_name(end)));
    const auto& e = *end.text();
    return words.size() >= e.size() && words.compare(front ? 0 : words.size() - e.size(), e.size(), e) == 0;
  };
  const auto* list = ends.list();
  if (list && list->type == List::Type::tuple) return std::any_of(list->items.begin(), list->items.end(), one);
  return one(ends);
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

TemplateValue Renderer::attribute(const TemplateValue& object, const std::string& name) {
  if (object.is_undefined()) fail_undefined(object);
  if (const auto* space = object.get<std::shared_ptr<Namespace>>()) {
    if (name.rfind("__", 0) == 0) throw ConfigError(text("the attribute ", name, " is not supported"));
    if (const auto* found = (*space)->find(name)) return *found;
  } else if (const auto* held = object.get<std::shared_ptr<const Loop>>()) {
    const auto& loop = **held;
    const auto length = static_cast<std::int64_t>(loop.items->size());
    const auto index = static_cast<std::int64_t>(loop.index);
    if (name == "index") return TemplateValue(index + 1);
    if (name == "index0") return TemplateValue(index);
    if (name == "revindex") return TemplateValue(length - index);
    if (name == "revindex0") return TemplateValue(length - index - 1);
    if (name == "first") return TemplateValue(index == 0);
    if (name == "last") return TemplateValue(index + 1 == length);
    if (name == "length") return TemplateValue(length);
    if (name == "previtem")
      return index > 0 ? (*loop.items)[loop.index - 1] : TemplateValue::undefined("there is no previous item");
    if (name == "nextitem")
      return index + 1 < length ? (*loop.items)[loop.index + 1] : TemplateValue::undefined("there is no next item");
    throw ConfigError(text("loop.", name, " is not supported"));
  } else if (has_method(object, name)) {
    Function function;
    function.name = name;
    function.self = std::make_shared<const TemplateValue>(object);
    return TemplateValue(std::make_shared<const Function>(std::move(function)));
  } else if (const auto* dict = object.dict()) {
    if (const auto* found = dict->find(TemplateValue::of(name))) return *found;
  } else if (object.get<std::shared_ptr<const Function>>()) {
    throw ConfigError(text("the attribute ", name, " of a function is not supported"));
  }
  return TemplateValue::undefined(text("'", type_name(object), " object' has no attribute '", name, "'"));
}

TemplateValue Renderer::item(const TemplateValue& object, const TemplateValue& index) {
  if (object.is_undefined()) fail_undefined(object);
  if (const auto* dict = object.dict()) {
    if (const auto* found = dict->find(index)) return *found;
  } else if (index.get<std::int64_t>() || index.get<bool>()) {
    auto at = index.get<bool>() ? static_cast<std::int64_t>(*index.get<bool>()) : *index.get<std::int64_t>();
    const auto* list = object.list();
    const auto* words = object.text();
    const auto starts = words ? code_point_starts(*words) : std::vector<std::size_t>{};
    const bool indexed = list && list->type <= List::Type::range;
    const auto length = static_cast<std::int64_t>(words ? starts.size() - 1 : indexed ? list->items.size() : 0);
    if (at < 0) at += length;
    if (at >= 0 && at < length) {
      const auto i = static_cast<std::size_t>(at);
      return words ? make_text(words->substr(starts[i], starts[i + 1] - starts[i])) : list->items[i];
    }
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
    const auto starts = code_point_starts(*words);
    for (std::size_t i = 0; i + 1 < starts.size(); ++i)
      items.push_back(TemplateValue::of(words->substr(starts[i], starts[i + 1] - starts[i])));
  } else {
    throw ConfigError(text("'", type_name(value), "' object is not iterable"));
  }
  created(items.size() * sizeof(TemplateValue));
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
    return dict->find(value) != nullptr;
  }
  const auto* list = container.list();
  if (!list) throw ConfigError(text("argument of type '", type_name(container), "' is not iterable"));
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
    if (const auto* found = dict.find(*given.get("key"))) return *found;
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
  const Given given(name, arguments, {"value"});
  if (!given.get("value")) throw ConfigError(text(name, " needs a value"));
  const auto& items = self.list()->items;
  if (name == "count")
    return TemplateValue(static_cast<std::int64_t>(
        std::count_if(items.begin(), items.end(), [&](const auto& one) { return equal(one, *given.get("value")); })));
  for (std::size_t i = 0; i < items.size(); ++i)
    if (equal(items[i], *given.get("value"))) return TemplateValue(static_cast<std::int64_t>(i));
  throw ConfigError("index: the value is not in the list");
}

}  // namespace

TemplateValue Renderer::method(const TemplateValue& self, const std::string& name, const Arguments& arguments) {
  if (self.dict()) return dict_method(*this, self, name, arguments);
  if (self.list()) return list_method(self, name, arguments);
  const auto& words = *self.text();
  const auto texts = [&](const std::vector<std::string>& parts) {
    Values items;
    for (const auto& part : parts) items.push_back(TemplateValue::of(part));
    created(words.size());
    return make_list(std::move(items));
  };
  if (name == "strip" || name == "lstrip" || name == "rstrip") {
    const Given given(name, arguments, {"chars"});
    const auto* characters = given.set("chars") ? &given.text("chars") : nullptr;
    return make_text(strip(words, name != "rstrip", name != "lstrip", characters));
  }
  if (name == "split" || name == "rsplit") {
    const Given given(name, arguments, {"sep", "maxsplit"});
    const auto* separator = given.set("sep") ? &given.text("sep") : nullptr;
    const auto most = std::max<std::int64_t>(given.integer("maxsplit", -1), -1);
    if (name == "split" || most < 0) return texts(split(words, separator, most));
    if (!separator || separator->empty()) throw ConfigError("rsplit needs a separator that is not empty");
    return texts(split_from_right(words, *separator, most));
  }
  if (name == "splitlines") {
    const Given none(name, arguments, {});
    return texts(split_lines(words));
  }
  if (name == "startswith" || name == "endswith") {
    const Given given(name, arguments, {"prefix"});
    if (!given.get("prefix")) throw ConfigError(text(name, " needs a string"));
    return TemplateValue(has_end(words, *given.get("prefix"), name == "startswith"));
  }
  if (name == "replace") {
    const Given given(name, arguments, {"old", "new", "count"});
    auto made = replaced(words, given.text("old"), given.text("new"), given.integer("count", -1));
    return make_text(std::move(made));
  }
  if (name == "join") {
    const Given given(name, arguments, {"items"});
    if (!given.get("items")) throw ConfigError("join needs a list");
    if (given.get("items")->is_undefined()) return make_text("");
    std::string joined;
    bool first = true;
    for (const auto& part : iterate(*given.get("items"))) {
      if (!part.text()) throw ConfigError(text("join: expected strings, found ", type_name(part)));
      joined += (std::exchange(first, false) ? "" : words) + *part.text();
      if (static_cast<std::int64_t>(joined.size()) > limits_.output_bytes) break;
    }
    return make_text(std::move(joined));
  }
  if (name == "find" || name == "index" || name == "count") {
    const Given given(name, arguments, {"sub"});
    const auto& part = given.text("sub");
    if (name == "count") {
      std::int64_t count = part.empty() ? static_cast<std::int64_t>(code_point_starts(words).size()) : 0;
      for (auto at = part.empty() ? std::string::npos : words.find(part); at != std::string::npos;
           at = words.find(part, at + part.size()))
        ++count;
      return TemplateValue(count);
    }
    const auto at = words.find(part);
    if (at == std::string::npos && name == "index") throw ConfigError("index: substring not found");
    if (at == std::string::npos) return TemplateValue(std::int64_t{-1});
    return TemplateValue(static_cast<std::int64_t>(code_point_starts(words.substr(0, at)).size()) - 1);
  }
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
      throw ConfigError("strftime_now is not supported here, because the text would differ from day to day");
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

}  // namespace tessera::data::chat
