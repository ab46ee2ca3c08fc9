#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "framework/jinja/chat_template_render.h"

namespace tessera::jinja {

/// The arguments of one call, by parameter name.
class Given {
 public:
  /// Throws ConfigError for too many positional arguments, an unknown parameter name, and a parameter given twice.
  Given(const std::string& function, const Arguments& arguments, std::initializer_list<const char*> parameters);
  /// The argument; null if it is not given.
  const TemplateValue* get(std::string_view parameter) const;
  /// The argument; null if it is not given or None.
  const TemplateValue* set(std::string_view parameter) const;
  /// The argument as text. Throws ConfigError if it is not given or not a string.
  const std::string& text(std::string_view parameter) const;
  std::int64_t integer(std::string_view parameter, std::int64_t otherwise) const;
  bool flag(std::string_view parameter, bool otherwise) const;

 private:
  std::string function_;
  std::vector<std::pair<std::string_view, const TemplateValue*>> values_;
};

/// Jinja's make_attrgetter: "a.b.0". `otherwise`, if not null, replaces each part that is not defined.
TemplateValue by_path(Renderer& renderer, TemplateValue value, const TemplateValue& path,
                      const TemplateValue* otherwise = nullptr);
/// The filters sort, dictsort, unique, min, max, sum, int, float and round; nothing for another name.
std::optional<TemplateValue> aggregate_filter(Renderer& renderer, const std::string& name, const TemplateValue& value,
                                              const Arguments& arguments);
/// The methods of strings that search a part, pad, or tell what characters there are; nothing for another name.
std::optional<TemplateValue> search_method(Renderer& renderer, const std::string& words, const std::string& name,
                                           const Arguments& arguments);

/// Whether `words` begin (`front`) or end with `ends`, a string or one of a tuple of strings. Throws ConfigError for
/// another type.
bool has_end(std::string_view words, const TemplateValue& ends, bool front);
/// Python's str.upper(), lower(), capitalize() and title(). Throws ConfigError for non-ASCII text, whose case mapping
/// depends on Python's Unicode version.
std::string upper(std::string_view text);
std::string lower(std::string_view text);
std::string capitalized(std::string_view text);
std::string titled(std::string_view text);
/// `text` with every occurrence of `from`, or the first `count` (-1: all), replaced by `to`; an empty `from` matches
/// between code points, as in Python's str.replace(). Throws ConfigError if the result has more than `most` bytes.
std::string replaced(std::string_view text, std::string_view from, std::string_view to, std::int64_t count,
                     std::int64_t most);
/// `text` with `fill`, one character, at its left or right or both, so that it has `width` code points. Throws
/// ConfigError if that is more than a limit.
std::string padded(const Renderer& renderer, const std::string& text, std::int64_t width, const std::string& fill,
                   bool left, bool right);
/// Python's str.isupper() or str.islower(). Throws ConfigError for non-ASCII text.
bool has_case(std::string_view text, bool upper);
/// MarkupSafe's escape: & < > ' " as character references.
std::string escaped(std::string_view text);

}  // namespace tessera::jinja
