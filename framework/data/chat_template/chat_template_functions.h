#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include "framework/data/chat_template/chat_template_render.h"

namespace tessera::data::chat {

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

/// Python's str.upper(), lower(), capitalize() and title(). Throws ConfigError for non-ASCII text, whose case mapping
/// depends on Python's Unicode version.
std::string upper(std::string_view text);
std::string lower(std::string_view text);
std::string capitalized(std::string_view text);
std::string titled(std::string_view text);
/// `text` with every occurrence of `from`, or the first `count` (-1: all), replaced by `to`; an empty `from` matches
/// between code points, as in Python's str.replace().
std::string replaced(std::string_view text, std::string_view from, std::string_view to, std::int64_t count);

}  // namespace tessera::data::chat
