#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include "framework/data/chat_template/chat_template_render.h"

namespace tessera::data::chat {

/// The arguments of one call by the names of its parameters.
class Given {
 public:
  /// Throws ConfigError for more positional arguments than names, a name that is no parameter, and one given twice.
  Given(const std::string& function, const Arguments& arguments, std::initializer_list<const char*> parameters);
  /// Null: not given.
  const TemplateValue* get(std::string_view parameter) const;
  /// Given and not None.
  const TemplateValue* set(std::string_view parameter) const;
  /// Throws ConfigError if it is not given or not a string.
  const std::string& text(std::string_view parameter) const;
  std::int64_t integer(std::string_view parameter, std::int64_t otherwise) const;
  bool flag(std::string_view parameter, bool otherwise) const;

 private:
  std::string function_;
  std::vector<std::pair<std::string_view, const TemplateValue*>> values_;
};

/// Python's str.upper() and so on. Throws ConfigError for text beyond ASCII, whose case depends on Python's version of
/// Unicode.
std::string upper(std::string_view text);
std::string lower(std::string_view text);
std::string capitalized(std::string_view text);
std::string titled(std::string_view text);
/// Every occurrence of `from`, or the first `count` ones (-1: all), replaced; an empty `from` stands between code
/// points.
std::string replaced(std::string_view text, std::string_view from, std::string_view to, std::int64_t count);

}  // namespace tessera::data::chat
