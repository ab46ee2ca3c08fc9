#include "framework/tokenizers/hugging_face/json_value.h"

#include "framework/base/error.h"

namespace tessera::tokenizers::hugging_face {

void JsonValue::refuse(const std::string& what) const {
  throw ConfigError(tessera::text(*file_, ": ", path_, path_.empty() ? "" : ": ", what));
}

void JsonValue::unsupported(std::string_view what, std::string_view words, std::string_view supported) const {
  throw ConfigError(tessera::text(*file_, ": ", path_.empty() ? "" : path_ + ": ", what, " '", words,
                                  "' is not supported; supported are ", supported));
}

std::optional<JsonValue> JsonValue::find(std::string_view name) const {
  simdjson::dom::object object;
  if (element_.get(object) != simdjson::SUCCESS) refuse("expected an object");
  std::optional<simdjson::dom::element> last;  // of equal names the last counts
  for (const auto field : object)
    if (field.key == name) last = field.value;
  if (!last || last->is_null()) return std::nullopt;
  return JsonValue(*file_, *last, (path_.empty() ? "" : path_ + ".") + std::string(name));
}

JsonValue JsonValue::at(std::string_view name) const {
  if (auto value = find(name)) return *std::move(value);
  refuse(tessera::text("the field '", name, "' is missing"));
}

std::vector<JsonValue> JsonValue::items() const {
  simdjson::dom::array array;
  if (element_.get(array) != simdjson::SUCCESS) refuse("expected a list");
  std::vector<JsonValue> all;
  for (const auto one : array) all.emplace_back(*file_, one, tessera::text(path_, "[", all.size(), "]"));
  return all;
}

std::string_view JsonValue::text() const {
  std::string_view words;
  if (element_.get(words) != simdjson::SUCCESS) refuse("expected a text");
  return words;
}

bool JsonValue::boolean() const {
  bool value = false;
  if (element_.get(value) != simdjson::SUCCESS) refuse("expected true or false");
  return value;
}

std::int64_t JsonValue::integer() const {
  std::int64_t value = 0;
  if (element_.get(value) != simdjson::SUCCESS || value < 0) refuse("expected a whole number of 0 or more");
  return value;
}

std::string JsonValue::text_of(std::string_view name, std::string_view otherwise) const {
  const auto value = find(name);
  return std::string(value ? value->text() : otherwise);
}

bool JsonValue::boolean_of(std::string_view name, bool otherwise) const {
  const auto value = find(name);
  return value ? value->boolean() : otherwise;
}

}  // namespace tessera::tokenizers::hugging_face
