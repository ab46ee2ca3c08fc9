// Methods of strings that pad, search a part, or tell what characters there are.

#include <algorithm>
#include <cctype>

#include "framework/jinja/chat_template_functions.h"

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

TemplateValue found_from_right(const std::string& words, const std::string& part, bool must_be_there) {
  const auto at = words.rfind(part);
  if (at != std::string::npos)
    return TemplateValue(static_cast<std::int64_t>(code_points(std::string_view(words).substr(0, at))));
  if (must_be_there) throw ConfigError("rindex: substring not found");
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

std::optional<TemplateValue> search_method(Renderer& renderer, const std::string& words, const std::string& name,
                                           const Arguments& arguments) {
  if (name == "partition" || name == "rpartition") {
    const Given given(name, arguments, {"sep"});
    return partitioned(renderer, words, given.text("sep"), name == "rpartition");
  }
  if (name == "rfind" || name == "rindex") {
    const Given given(name, arguments, {"sub"});
    return found_from_right(words, given.text("sub"), name == "rindex");
  }
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
