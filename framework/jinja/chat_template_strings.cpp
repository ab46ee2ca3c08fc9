// Methods of strings that pad, search a part, or tell what characters there are.

#include <algorithm>
#include <array>
#include <cctype>

#include "framework/jinja/chat_template_functions.h"
#include "framework/unicode/utf8.h"

namespace tessera::jinja {
namespace {

using Test = int (*)(int);

// Python's isdigit() and the like: all characters, and one at least. The locale of the process is "C".
TemplateValue all_are(const std::string& words, const std::string& name, Test test) {
  for (const char c : words)
    if (static_cast<unsigned char>(c) >= 0x80)
      throw ConfigError(text("the method ", name, " of text beyond ASCII is not supported"));
  return TemplateValue(!words.empty() && std::all_of(words.begin(), words.end(), [test](char c) {
    return test(static_cast<unsigned char>(c)) != 0;
  }));
}

TemplateValue partitioned(Renderer& renderer, const std::string& words, const std::string& separator, bool from_right) {
  if (separator.empty()) throw ConfigError("empty separator");
  const auto at = from_right ? words.rfind(separator) : words.find(separator);
  const auto part = [&](std::string_view one) { return renderer.make_part(one); };
  const std::string_view all = words;
  Values parts;
  if (at != std::string::npos)
    parts = {part(all.substr(0, at)), part(separator), part(all.substr(at + separator.size()))};
  else if (from_right)
    parts = {part(""), part(""), part(all)};
  else
    parts = {part(all), part(""), part("")};
  return renderer.make_list(std::move(parts), List::Type::tuple);
}

constexpr std::array<std::string_view, 7> searching = {"find",  "rfind",      "index",   "rindex",
                                                       "count", "startswith", "endswith"};

// A part of a text, and the number of code points before it.
struct Part {
  std::string_view words;
  std::int64_t start = 0;
};

std::size_t bytes_of(std::string_view words, std::int64_t count) {
  std::size_t at = 0;
  for (; count > 0; --count) at += unicode::utf8_step(words, at).length;
  return at;
}

// What Python's arguments start and end, in code points, select; nothing if start lies behind end.
std::optional<Part> part_of(std::string_view words, const Given& given) {
  if (!given.set("start") && !given.set("end")) return Part{words};
  const auto length = static_cast<std::int64_t>(code_points(words));
  const auto from_front = [length](std::int64_t at) { return at < 0 ? std::max<std::int64_t>(at + length, 0) : at; };
  const auto start = given.set("start") ? from_front(given.integer("start", 0)) : 0;
  const auto end = given.set("end") ? std::min(from_front(given.integer("end", 0)), length) : length;
  if (start > end) return std::nullopt;
  const auto part = words.substr(bytes_of(words, start));
  return Part{part.substr(0, bytes_of(part, end - start)), start};
}

std::int64_t count_of(std::string_view words, std::string_view sub) {
  if (sub.empty()) return static_cast<std::int64_t>(code_points(words)) + 1;
  std::int64_t count = 0;
  for (auto at = words.find(sub); at != std::string_view::npos; at = words.find(sub, at + sub.size())) ++count;
  return count;
}

// A method of `searching`.
TemplateValue searched(const std::string& words, const std::string& name, const Arguments& arguments) {
  const Given given(name, arguments, {"sub", "start", "end"});
  if (!arguments.named.empty()) throw ConfigError(text(name, " takes no keyword arguments"));
  if (!given.get("sub")) throw ConfigError(text(name, " needs a string"));
  const auto part = part_of(words, given);
  const auto inside = part ? part->words : std::string_view();
  if (name == "startswith" || name == "endswith") {
    const bool has = has_end(inside, *given.get("sub"), name == "startswith");
    return TemplateValue(has && part.has_value());
  }
  const std::string_view sub = given.text("sub");
  if (name == "count") return TemplateValue(part ? count_of(inside, sub) : std::int64_t{0});
  const auto at = !part ? std::string_view::npos : name[0] == 'r' ? inside.rfind(sub) : inside.find(sub);
  if (at != std::string_view::npos)
    return TemplateValue(part->start + static_cast<std::int64_t>(code_points(inside.substr(0, at))));
  if (name == "index" || name == "rindex") throw ConfigError(text(name, ": substring not found"));
  return TemplateValue(std::int64_t{-1});
}

TemplateValue justified(Renderer& renderer, const std::string& words, const std::string& name,
                        const Arguments& arguments) {
  const Given given(name, arguments, {"width", "fillchar"});
  if (!given.get("width")) throw ConfigError(text(name, " needs a width"));
  const std::string fill = given.get("fillchar") ? given.text("fillchar") : " ";
  if (code_points(fill) != 1) throw ConfigError(text(name, ": the fill character must be exactly one character long"));
  return renderer.make_text(padded(renderer, words, given.integer("width", 0), fill, name != "ljust", name != "rjust"));
}

TemplateValue filled_with_zeros(Renderer& renderer, const std::string& words, const Arguments& arguments) {
  const Given given("zfill", arguments, {"width"});
  if (!given.get("width")) throw ConfigError("zfill needs a width");
  const bool sign = !words.empty() && (words[0] == '-' || words[0] == '+');
  const auto width = given.integer("width", 0) - (sign ? 1 : 0);
  const auto digits = padded(renderer, words.substr(sign ? 1 : 0), width, "0", true, false);
  return renderer.make_text(words.substr(0, sign ? 1 : 0) + digits);
}

}  // namespace

std::string padded(const Renderer& renderer, const std::string& words, std::int64_t width, const std::string& fill,
                   bool left, bool right) {
  const auto missing = width - static_cast<std::int64_t>(code_points(words));
  if (missing <= 0) return words;
  renderer.fits(static_cast<std::size_t>(missing));
  renderer.fits(static_cast<std::size_t>(missing) * fill.size() + words.size());
  // Python's rule for an odd number.
  const auto before = !left ? 0 : right ? missing / 2 + (missing & width & 1) : missing;
  std::string out;
  for (std::int64_t i = 0; i < before; ++i) out += fill;
  out += words;
  for (auto i = before; i < missing; ++i) out += fill;
  return out;
}

bool has_case(std::string_view words, bool upper_case) {
  const auto wanted = upper_case ? upper(words) : lower(words), other = upper_case ? lower(words) : upper(words);
  return wanted == words && other != words;
}

bool has_end(std::string_view words, const TemplateValue& ends, bool front) {
  const auto one = [&](const TemplateValue& end) {
    if (!end.text()) throw ConfigError(text("startswith and endswith need a string, not ", type_name(end)));
    const std::string_view e = *end.text();
    return words.size() >= e.size() && words.substr(front ? 0 : words.size() - e.size(), e.size()) == e;
  };
  const auto* list = ends.list();
  if (list && list->type == List::Type::tuple) return std::any_of(list->items.begin(), list->items.end(), one);
  return one(ends);
}

std::optional<TemplateValue> search_method(Renderer& renderer, const std::string& words, const std::string& name,
                                           const Arguments& arguments) {
  if (name == "partition" || name == "rpartition") {
    const Given given(name, arguments, {"sep"});
    return partitioned(renderer, words, given.text("sep"), name == "rpartition");
  }
  if (std::find(searching.begin(), searching.end(), name) != searching.end()) return searched(words, name, arguments);
  if (name == "center" || name == "ljust" || name == "rjust") return justified(renderer, words, name, arguments);
  if (name == "zfill") return filled_with_zeros(renderer, words, arguments);
  if (name.rfind("is", 0) != 0 || name == "isspace") return std::nullopt;
  const Given none(name, arguments, {});
  if (name == "isupper" || name == "islower") return TemplateValue(has_case(words, name == "isupper"));
  if (name == "isascii")
    return TemplateValue(
        std::all_of(words.begin(), words.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; }));
  Test test = std::isdigit;
  if (name == "isalpha") test = std::isalpha;
  if (name == "isalnum") test = std::isalnum;
  return all_are(words, name, test);
}

}  // namespace tessera::jinja
