#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "framework/base/error.h"
#include "framework/options/limits.h"
#include "framework/options/value.h"

namespace tessera::hugging_face {

/// A model's configuration while rules convert it. Paths are those of options, "moe_config.moe_router_topk", and of
/// facts, "facts.sparse_step". Does not own the configuration.
class ConvertedConfig {
 public:
  /// Errors begin with `speaker`.
  ConvertedConfig(options::Value& config, std::string speaker) : config_(config), speaker_(std::move(speaker)) {}

  /// Null if the option is not set.
  const options::Value* find(const std::string& path) const {
    const auto* value = config_.at(path);
    return value == nullptr || value->kind == options::Value::Kind::none ? nullptr : value;
  }
  /// Throws ConfigError if the option is set and is not an integer in this range.
  std::optional<std::int64_t> integer(const std::string& path, std::int64_t least, std::int64_t most) const {
    const auto* value = find(path);
    if (value == nullptr) return std::nullopt;
    std::int64_t number = 0;
    const auto* end = value->scalar.data() + value->scalar.size();
    const auto [stop, error] = std::from_chars(value->scalar.data(), end, number);
    if (error != std::errc{} || stop != end || number < least || number > most)
      problem(text(name_of(path), " is ", *value, "; expected an integer from ", least, " to ", most));
    return number;
  }
  std::int64_t layers() const { return integer("num_layers", 1, options::most_layers).value_or(1); }
  bool has_experts() const { return integer("num_experts", 0, options::most_experts).value_or(0) > 0; }
  bool says(const std::string& path, const char* word) const {
    const auto* value = find(path);
    return value != nullptr && value->scalar == word;
  }

  void set(const std::string& path, const std::string& words) { config_.set(path, made(words)); }
  void set_list(const std::string& path, const std::vector<std::string>& words) {
    auto list = made("");
    list.kind = options::Value::Kind::list;
    for (const auto& word : words) list.items.push_back(made(word));
    config_.set(path, std::move(list));
  }
  void erase(const std::string& name) {
    std::erase_if(config_.fields, [&](const auto& field) { return field.name == name; });
  }
  [[noreturn]] void problem(const std::string& message) const { throw ConfigError(text(speaker_, ": ", message)); }
  /// Adds a line for people.
  void note(const std::string& message) { notes_.push_back(text(speaker_, ": ", message)); }
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  options::Value made(const std::string& words) const { return options::Value::of(words, {speaker_, 0, "", 1}); }
  static std::string name_of(const std::string& path) { return path.substr(path.rfind('.') + 1); }

  options::Value& config_;
  std::string speaker_;
  std::vector<std::string> notes_;
};

}  // namespace tessera::hugging_face
