#pragma once

#include <simdjson.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::tokenizers::hugging_face {

/// One value of a parsed JSON file, with its path in the file for messages. Refers to the parser's memory, which must
/// outlive it. All readers throw ConfigError, naming file and path, if the value does not have the requested type.
class JsonValue {
 public:
  JsonValue(const std::string& file, simdjson::dom::element element, std::string path = "")
      : file_(&file), path_(std::move(path)), element_(element) {}

  const std::string& path() const { return path_; }
  bool is_null() const { return element_.is_null(); }
  bool is_object() const { return element_.is_object(); }
  bool is_string() const { return element_.is_string(); }
  bool is_array() const { return element_.is_array(); }
  simdjson::dom::element element() const { return element_; }

  /// A member of an object; nothing if it is missing or null.
  std::optional<JsonValue> find(std::string_view name) const;
  /// A member of an object. Throws ConfigError also if it is missing or null.
  JsonValue at(std::string_view name) const;
  std::vector<JsonValue> items() const;

  std::string_view text() const;
  bool boolean() const;
  std::int64_t integer() const;  ///< 0 or more

  std::string text_of(std::string_view name, std::string_view otherwise) const;
  bool boolean_of(std::string_view name, bool otherwise) const;

  [[noreturn]] void refuse(const std::string& what) const;
  /// "X 'words' is not supported; supported are ..."
  [[noreturn]] void unsupported(std::string_view what, std::string_view words, std::string_view supported) const;

 private:
  const std::string* file_;
  std::string path_;
  simdjson::dom::element element_;
};

}  // namespace tessera::tokenizers::hugging_face
