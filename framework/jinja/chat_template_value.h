#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "framework/base/error.h"
#include "framework/base/json.h"

namespace tessera::jinja {

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
  struct Safe {
    Text text;  ///< marked by the filter safe
  };
  using Data =
      std::variant<Undefined, None, bool, std::int64_t, double, Text, std::shared_ptr<List>, std::shared_ptr<Dict>,
                   std::shared_ptr<Namespace>, std::shared_ptr<const Function>, std::shared_ptr<Loop>, Safe>;
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
  bool is_safe() const { return get<Safe>() != nullptr; }
  /// The text of a string, also one marked as safe; null for all else.
  const std::string* text() const {
    if (const auto* plain = get<Text>()) return plain->get();
    return get<Safe>() ? get<Safe>()->text.get() : nullptr;
  }
  List* list() const { return get<std::shared_ptr<List>>() ? get<std::shared_ptr<List>>()->get() : nullptr; }
  Dict* dict() const { return get<std::shared_ptr<Dict>>() ? get<std::shared_ptr<Dict>>()->get() : nullptr; }
};

using Values = std::vector<TemplateValue>;

/// A Python list, tuple, range, dictionary view or generator. A generator is empty once it has been iterated over.
struct List {
  enum class Type { list, tuple, range, view, generator };
  Type type = Type::list;
  Values items;
  int depth = 1;          ///< nesting depth of values
  std::int64_t size = 0;  ///< of its items, as size_of
};

struct Dict {
  std::vector<std::pair<TemplateValue, TemplateValue>> items;
  int depth = 1;
  std::int64_t size = 0;
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

/// The variable `loop`: one object for all passes of a loop. As in Jinja, an item is tested by the filter of the loop
/// only when it is needed: for the next pass, for `last` and `nextitem`, and for what depends on the length.
struct Loop {
  Values items;                                      ///< [0, passed): accepted by the filter; [tested, end): not tested
  std::size_t passed = 0, tested = 0;                ///< without a filter: the number of items
  std::size_t index = 0;                             ///< of the pass, from 0
  std::function<bool(const TemplateValue&)> filter;  ///< null: none, or the loop has ended
  bool filtering = false;                            ///< the filter is running

  /// Whether there is an item for the pass `at`; tests as many items as that takes. Throws ConfigError if the filter
  /// does, if it is running already, and if the loop has ended before the items that are to be tested.
  bool has(std::size_t at);
  /// Number of passes; tests all items.
  std::int64_t length();
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
/// The arguments of Python's json.dumps.
struct JsonStyle {
  bool ensure_ascii = false, sort_keys = false;
  std::optional<std::string> indent = {};  ///< indentation of one level; none: all on one line
  std::string between_items = ", ", behind_key = ": ";
};
/// Python's json.dumps. Throws ConfigError for a value that JSON does not have, and for a text of more than `most`
/// bytes.
std::string to_json(const TemplateValue& value, const JsonStyle& style, std::int64_t most);
/// Python's repr() of a float.
std::string float_text(double value);

TemplateValue make_list(Values items, List::Type type = List::Type::list);
TemplateValue make_dict(std::vector<std::pair<TemplateValue, TemplateValue>> items);
/// Bytes of the texts in `value`, plus 16 for each nested value; a value that is shared counts wherever it is. All that
/// goes through a whole value takes time and memory proportional to this.
std::int64_t size_of(const TemplateValue& value);
/// Throws ConfigError for an integer beyond 64 bits.
TemplateValue from_json(const Json& json);
/// Depth of nested lists and dictionaries in `value`.
int depth_of(const TemplateValue& value);

// Python's text functions, on sequences of code points.

/// Byte offset of each code point of `text` (UTF-8), and the length of `text`.
std::vector<std::size_t> code_point_starts(std::string_view text);
/// Whether str.isspace() holds.
bool is_python_space(char32_t code);
/// Python's strip, lstrip, rstrip; `characters` null: white space.
std::string strip(std::string_view text, bool left, bool right, const std::string* characters = nullptr);
/// Number of code points of `text`.
std::size_t code_points(std::string_view text);
/// Calls `sink` for each line of Python's splitlines().
void split_lines(std::string_view text, const std::function<void(std::string_view)>& sink);

}  // namespace tessera::jinja
