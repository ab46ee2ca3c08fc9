#include "framework/jinja/chat_template_functions.h"

#include <algorithm>
#include <array>

#include "framework/unicode/utf8.h"

namespace tessera::jinja {

Given::Given(const std::string& function, const Arguments& arguments, std::initializer_list<const char*> parameters)
    : function_(function) {
  if (arguments.positional.size() > parameters.size())
    throw ConfigError(tessera::text(function, " takes at most ", parameters.size(), " argument(s), not ",
                                    arguments.positional.size()));
  for (std::size_t i = 0; i < arguments.positional.size(); ++i)
    values_.emplace_back(parameters.begin()[i], &arguments.positional[i]);
  for (const auto& [name, value] : arguments.named) {
    const auto known = std::find(parameters.begin(), parameters.end(), name);
    if (known == parameters.end()) throw ConfigError(tessera::text(function, " has no argument ", name));
    if (get(name)) throw ConfigError(tessera::text(function, ": the argument ", name, " is given twice"));
    values_.emplace_back(*known, &value);
  }
}

const TemplateValue* Given::get(std::string_view parameter) const {
  for (const auto& [name, value] : values_)
    if (name == parameter) return value;
  return nullptr;
}

const TemplateValue* Given::set(std::string_view parameter) const {
  const auto* value = get(parameter);
  return value && !value->is_none() ? value : nullptr;
}

const std::string& Given::text(std::string_view parameter) const {
  const auto* value = get(parameter);
  if (!value) throw ConfigError(tessera::text(function_, ": the argument ", parameter, " is missing"));
  if (!value->text())
    throw ConfigError(
        tessera::text(function_, ": the argument ", parameter, " must be a string, not ", type_name(*value)));
  return *value->text();
}

std::int64_t Given::integer(std::string_view parameter, std::int64_t otherwise) const {
  const auto* value = get(parameter);
  if (!value) return otherwise;
  if (const auto* b = value->get<bool>()) return *b ? 1 : 0;
  if (!value->get<std::int64_t>())
    throw ConfigError(
        tessera::text(function_, ": the argument ", parameter, " must be an integer, not ", type_name(*value)));
  return *value->get<std::int64_t>();
}

bool Given::flag(std::string_view parameter, bool otherwise) const {
  const auto* value = get(parameter);
  return value ? truth(*value) : otherwise;
}

namespace {

void need_ascii(std::string_view words) {
  for (const char c : words)
    if (static_cast<unsigned char>(c) >= 0x80)
      throw ConfigError("changing the case of text beyond ASCII is not supported");
}

char up(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; }
char down(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }

}  // namespace

std::string upper(std::string_view words) {
  need_ascii(words);
  std::string out(words);
  std::transform(out.begin(), out.end(), out.begin(), up);
  return out;
}

std::string lower(std::string_view words) {
  need_ascii(words);
  std::string out(words);
  std::transform(out.begin(), out.end(), out.begin(), down);
  return out;
}

std::string capitalized(std::string_view words) {
  auto out = lower(words);
  if (!out.empty()) out[0] = up(out[0]);
  return out;
}

std::string replaced(std::string_view words, std::string_view from, std::string_view to, std::int64_t count,
                     std::int64_t most) {
  std::string out;
  const auto append = [&out, most](std::string_view part) {
    if (out.size() + part.size() > static_cast<std::size_t>(most))
      throw ConfigError(tessera::text("replace makes a text of more than ", most, " bytes, which is the limit"));
    out += part;
  };
  std::size_t at = 0;
  for (auto found = words.find(from); found != std::string_view::npos && count != 0; found = words.find(from, found)) {
    append(words.substr(at, found - at));
    append(to);
    at = found;
    found += from.size();
    if (count > 0) --count;
    if (!from.empty()) {
      at = found;
      continue;
    }
    if (found == words.size()) break;
    found += unicode::utf8_step(words, found).length;
  }
  append(words.substr(at));
  return out;
}

std::string escaped(std::string_view words) {
  std::string out;
  for (const char c : words) {
    static const std::string_view special = "&<>'\"";
    static const std::array<std::string_view, 5> references = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    if (const auto which = special.find(c); which != std::string_view::npos)
      out += references[which];
    else
      out += c;
  }
  return out;
}

std::string titled(std::string_view words) {
  auto out = lower(words);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const auto is_letter = [&](std::size_t at) { return out[at] != up(out[at]) || out[at] != down(out[at]); };
    if (i == 0 || !is_letter(i - 1)) out[i] = up(out[i]);
  }
  return out;
}

}  // namespace tessera::jinja
