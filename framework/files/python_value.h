#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::files {

/// A JSON value as Python's json.loads (3.11) reads it, to be written again without a change: whole numbers of any
/// length (at most 4300 digits), NaN and Infinity, texts with half a surrogate pair; of equal keys the last one counts,
/// in the place of the first.
struct PythonValue {
  enum class Kind : std::uint8_t { null, boolean, number, text, list, object };
  Kind kind = Kind::null;
  std::string words =
      {};  ///< of a text: its characters, UTF-8; of null, booleans and numbers: as json.dumps writes them
  /// The text, or a key of the object, has half of a surrogate pair, which UTF-8 cannot express.
  bool lone_surrogate = false;
  std::vector<std::string> names = {};  ///< of an object: the keys of `items`
  std::vector<PythonValue> items = {};  ///< of a list or an object

  /// The member of an object; null pointer if it has none, or this is no object.
  const PythonValue* find(std::string_view name) const;
  bool is_text(std::string_view text) const { return kind == Kind::text && words == text; }
  /// What Python takes for false: null, false, 0, and what is empty.
  bool is_falsy() const;
  /// "null", "a boolean", "a number", "a text", "a list" or "an object".
  const char* kind_name() const;
};

/// Reads one JSON value and nothing behind it. Throws ConfigError for what json.loads refuses, and for bytes that are
/// not UTF-8: "line L, column C: ...", counted from the beginning of `words` with `first_line` as its first line.
PythonValue read_python_value(std::string_view words, std::int64_t first_line = 1);

/// Appends `value` as json.dumps(value, ensure_ascii=False) writes it. Throws ConfigError for half a surrogate pair.
void append_python_value(const PythonValue& value, std::string& out);
/// Appends a text with its quotes. Throws nothing; `words` must be UTF-8.
void append_python_text(std::string_view words, std::string& out);

}  // namespace tessera::files
