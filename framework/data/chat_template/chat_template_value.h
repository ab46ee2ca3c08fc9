#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "framework/base/error.h"

namespace tessera::data::chat {

struct Node;
struct List;
struct Dict;
struct Namespace;
struct Function;
struct Loop;

/// A value of a chat template, with Python's meaning. Copies share their content, as in Python.
struct TemplateValue {
  struct Undefined {
    std::shared_ptr<const std::string> what;  ///< "'x' is undefined"
  };
  struct None {};
  using Text = std::shared_ptr<const std::string>;
  using Data =
      std::variant<Undefined, None, bool, std::int64_t, double, Text, std::shared_ptr<List>, std::shared_ptr<Dict>,
                   std::shared_ptr<Namespace>, std::shared_ptr<const Function>, std::shared_ptr<const Loop>>;
  Data data;

  TemplateValue() = default;
  template <class T>
  explicit TemplateValue(T value) : data(std::move(value)) {}
  static TemplateValue none() { return TemplateValue(None{}); }
  static TemplateValue of(std::string text) {
    return TemplateValue(std::make_shared<const std::string>(std::move(text)));
  }
  static TemplateValue undefined(std::string what) {
    return TemplateValue(Undefined{std::make_shared<const std::string>(std::move(what))});
  }

  template <class T>
  const T* get() const {
    return std::get_if<T>(&data);
  }
  bool is_undefined() const { return get<Undefined>() != nullptr; }
  bool is_none() const { return get<None>() != nullptr; }
  /// The text of a string; null for all else.
  const std::string* text() const { return get<Text>() ? get<Text>()->get() : nullptr; }
  List* list() const { return get<std::shared_ptr<List>>() ? get<std::shared_ptr<List>>()->get() : nullptr; }
  Dict* dict() const { return get<std::shared_ptr<Dict>>() ? get<std::shared_ptr<Dict>>()->get() : nullptr; }
};

using Values = std::vector<TemplateValue>;

/// A Python list, tuple, range, dictionary view or generator. A generator is empty once it has been iterated over.
struct List {
  enum class Type { list, tuple, range, view, generator };
  Type type = Type::list;
  Values items;
  int depth = 1;  ///< nesting depth of values
};

struct Dict {
  std::vector<std::pair<TemplateValue, TemplateValue>> items;
  int depth = 1;
  /// The value of `key`; null if there is none. Valid until the dictionary is modified.
  const TemplateValue* find(const TemplateValue& key) const;
  void set(const TemplateValue& key, TemplateValue value);
};

struct Namespace {
  std::vector<std::pair<std::string, TemplateValue>> items;
  const TemplateValue* find(std::string_view name) const;
  void set(std::string_view name, TemplateValue value);
};

/// A macro, a global function or a method of a value.
struct Function {
  std::string name;
  const Node* macro = nullptr;
  std::shared_ptr<const TemplateValue> self;  ///< the object of a method
};

/// The variable `loop`.
struct Loop {
  std::shared_ptr<const Values> items;
  std::size_t index = 0;
};

/// Python's name of the value's type.
std::string type_name(const TemplateValue& value);
bool truth(const TemplateValue& value);
/// Python's ==.
bool equal(const TemplateValue& one, const TemplateValue& other);
/// Python's str(). Throws ConfigError for a value whose text differs between runs.
std::string str(const TemplateValue& value);
/// Python's repr().
std::string repr(const TemplateValue& value);
/// Python's json.dumps(ensure_ascii=False); `indent` below 0: None.
std::string to_json(const TemplateValue& value, int indent = -1);
/// Python's repr() of a float.
std::string float_text(double value);

TemplateValue make_list(Values items, List::Type type = List::Type::list);
TemplateValue make_dict(std::vector<std::pair<TemplateValue, TemplateValue>> items);
/// Throws ConfigError for an integer beyond 64 bits.
TemplateValue from_json(const nlohmann::ordered_json& json);
/// Depth of nested lists and dictionaries in `value`.
int depth_of(const TemplateValue& value);

// Python's text functions, on sequences of code points.

/// Byte offset of each code point of `text` (UTF-8), and the length of `text`.
std::vector<std::size_t> code_point_starts(std::string_view text);
/// Whether str.isspace() holds.
bool is_python_space(char32_t code);
/// Python's strip, lstrip, rstrip; `characters` null: white space.
std::string strip(std::string_view text, bool left, bool right, const std::string* characters = nullptr);
/// Python's splitlines().
std::vector<std::string> split_lines(std::string_view text);

}  // namespace tessera::data::chat
