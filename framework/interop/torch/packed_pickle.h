#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::torch {

/// A value of a PackedPickle, in 16 bytes. Texts lie in the bytes that were read, everything else in the PackedPickle.
struct PackedValue {
  enum class Kind : std::uint8_t {
    none,
    boolean,
    integer,
    real,    ///< without its value
    words,   ///< a string or bytes
    tuple,   ///< also torch.Size
    list,    ///< items
    dict,    ///< items: key, value, key, value, ... in the order of insertion
    global,  ///< a name, "torch float32"
    object,  ///< of a class, or a call of a function; its state, else the arguments
    hollow,  ///< was left out
  };
  Kind kind = Kind::none;
  std::uint32_t count = 0;  ///< bytes of a text, items of a tuple
  union {
    std::int64_t integer = 0;
    const char* text;
    const PackedValue* items;
    std::uint64_t index;
  };
};

/// A Python pickle of millions of values (the index of a distributed checkpoint), read as data: about 6 times the
/// memory of its bytes, some 50 million values a second. Nothing is executed.
class PackedPickle {
 public:
  using Value = PackedValue;

  /// Parses protocols 2 to 5. `allowed` says which globals may be named, "module name". Of the dict that is the state
  /// of the outermost object, the value of the key `left_out` is not kept: its texts, numbers and names are, and
  /// containers are Kind::hollow. `bytes` must outlive this object. Throws ConfigError, beginning with `speaker`, for
  /// an opcode that does more than build data, another global, truncated data and invalid references.
  PackedPickle(std::span<const std::byte> bytes, std::string speaker,
               const std::function<bool(const std::string&)>& allowed, std::string_view left_out = {});

  const Value& root() const { return root_; }
  /// A text; empty if the value is none.
  static std::string_view words(const Value& value);
  /// The items of a tuple, a list or a dict; empty for other values.
  std::span<const Value> items(const Value& value) const;
  /// The value of a text key of a dict; null if there is none, or this is not a dict.
  const Value* find(const Value& dict, std::string_view key) const;
  /// "torch float32" of a global; the class or function of an object; empty for other values.
  std::string_view name(const Value& value) const;
  /// The state of an object; its arguments if it has none. A value of Kind::none for other values.
  const Value& state(const Value& object) const;
  /// Throws ConfigError, "<speaker>: <message>".
  [[noreturn]] void refuse(const std::string& message) const;

 private:
  friend class PackedReader;
  struct Object {
    Value callee, state;
  };
  /// Memory for tuples, which never move.
  class Tuples {
   public:
    const Value* add(std::span<const Value> items);

   private:
    std::deque<std::unique_ptr<Value[]>> blocks_;
    std::size_t used_ = 0, size_ = 0;
  };
  std::string speaker_;
  Tuples tuples_;
  std::deque<std::vector<Value>> lists_;  ///< lists and dicts
  std::deque<Object> objects_;
  std::vector<std::string> globals_;
  Value root_;
};

}  // namespace tessera::torch
