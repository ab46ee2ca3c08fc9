#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::files {

/// Extracts the texts of the requested keys from a line with a JSON object. Accepts and rejects the same lines as
/// Python's json.loads (3.11): of equal keys the last one counts, NaN and Infinity are numbers, an integer has at most
/// 4300 digits, an unpaired surrogate is allowed in values of other keys. Reuses its memory for each line; must not be
/// shared between threads.
class JsonLine {
 public:
  explicit JsonLine(std::vector<std::string> keys);

  /// Parses `line` (UTF-8, with or without its line end), whose memory must stay valid while the texts are used. Throws
  /// ConfigError, without file and line, if it is not JSON, or the value of a key is missing or neither a string nor a
  /// list of strings.
  void parse(std::string_view line);

  std::size_t keys() const { return values_.size(); }
  /// The texts of key `key`: one for a string, the elements for a list. Valid until the next parse().
  std::span<const std::string_view> texts(std::size_t key) const { return values_[key].texts; }
  bool is_list(std::size_t key) const { return values_[key].kind == Kind::list; }

 private:
  enum class Kind : std::uint8_t { absent, string, list, other };
  struct Value {
    std::string key;
    Kind kind = Kind::absent;
    const char* wrong = nullptr;  // type name of the value, or of an element, that is not a string
    bool lone_surrogate = false;
    std::vector<std::string_view> texts;
  };
  struct String {
    std::string_view text;
    bool lone_surrogate = false;
  };

  [[noreturn]] void refuse(const char* at, const std::string& what) const;
  void skip_blanks();
  bool take(char sign);
  void expect(char sign, const char* what);
  void parse_object();
  void parse_chosen(Value& value);
  void parse_list(Value& value);
  const char* skip_value();
  const char* skip_scalar();
  void skip_number();
  void skip_word(std::string_view word);
  String parse_string();
  char32_t parse_hex(const char* backslash);
  String unescape(const char* first);
  void check(const Value& value) const;

  std::vector<Value> values_;
  std::string_view line_;
  const char *at_ = nullptr, *end_ = nullptr;
  std::string unescaped_;  // strings with escapes; never longer than the line, so it does not move while it is parsed
  std::vector<char> open_;
};

}  // namespace tessera::files
