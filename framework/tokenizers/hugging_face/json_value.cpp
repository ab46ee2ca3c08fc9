#include "framework/tokenizers/hugging_face/json_value.h"

#include "framework/base/error.h"

namespace tessera::tokenizers::hugging_face {

std::optional<std::int64_t> whole_number(const Json& json) {
  if (!json.is_number_unsigned() || json.get<std::uint64_t>() > INT64_MAX) return std::nullopt;
  return json.get<std::int64_t>();
}

void JsonValue::refuse(const std::string& what) const {
  throw ConfigError(tessera::text(*file_, ": ", path_, path_.empty() ? "" : ": ", what));
}

void JsonValue::unsupported(std::string_view what, std::string_view words, std::string_view supported) const {
  throw ConfigError(tessera::text(*file_, ": ", path_.empty() ? "" : path_ + ": ", what, " '", words,
                                  "' is not supported; supported are ", supported));
}

std::optional<JsonValue> JsonValue::find(std::string_view name) const {
  if (!json_->is_object()) refuse("expected an object");
  const auto* found = json_->find(name);
  if (found == nullptr || found->is_null()) return std::nullopt;
  return JsonValue(*file_, *found, (path_.empty() ? "" : path_ + ".") + std::string(name));
}

JsonValue JsonValue::at(std::string_view name) const {
  if (auto value = find(name)) return *std::move(value);
  refuse(tessera::text("the field '", name, "' is missing"));
}

std::vector<JsonValue> JsonValue::items() const {
  if (!json_->is_array()) refuse("expected a list");
  std::vector<JsonValue> all;
  for (const auto& one : *json_) all.emplace_back(*file_, one, tessera::text(path_, "[", all.size(), "]"));
  return all;
}

std::string_view JsonValue::text() const {
  if (!json_->is_string()) refuse("expected a text");
  return json_->string();
}

bool JsonValue::boolean() const {
  if (!json_->is_boolean()) refuse("expected true or false");
  return json_->boolean();
}

std::int64_t JsonValue::integer() const {
  const auto value = whole_number(*json_);
  if (!value) refuse("expected a whole number of 0 or more");
  return *value;
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
