#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "framework/base/error.h"

namespace tessera::data {

/// The bytes end inside a value: a header that continues beyond the bytes at hand, or a damaged one.
class ThriftEnd : public ConfigError {
  using ConfigError::ConfigError;
};

/// Reader of Thrift's compact protocol, as far as Parquet's footer and page headers use it. Every length is checked
/// against the bytes that are left, and nesting is limited, so any bytes are read or refused. All members throw
/// ThriftEnd if the bytes end too early, and ConfigError if a value is of another type than expected.
class ThriftReader {
 public:
  enum class Type {
    boolean_true = 1,
    boolean_false,
    int8,
    int16,
    int32,
    int64,
    float64,
    binary,
    list,
    set,
    map,
    structure
  };
  struct Field {
    int id = 0;
    Type type = Type::structure;
  };

  /// `bytes` must live as long as what is read from it.
  explicit ThriftReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  /// Reads a structure: calls `each(field)` for each field. `each` reads the value and returns true, or returns false,
  /// and the value is skipped.
  template <class Each>
  void structure(Each each) {
    enter();
    for (Field field; next_field(field);)
      if (!each(static_cast<const Field&>(field))) skip(field.type);
    --depth_;
  }
  /// Reads a field that is a structure.
  template <class Each>
  void structure(const Field& field, Each each) {
    expect(field, Type::structure);
    structure(each);
  }
  /// Reads a field that is a list of `element`: calls `each()` for each, which reads it.
  template <class Each>
  void list(const Field& field, Type element, Each each) {
    for (auto left = begin_list(field, element); left > 0; --left) each();
  }

  bool boolean(const Field& field);
  /// An integer field of 8, 16, 32 or 64 bits.
  std::int64_t integer(const Field& field);
  /// The same; throws ConfigError if it is below `low` or above `high`.
  std::int64_t integer(const Field& field, std::int64_t low, std::int64_t high);
  std::string_view binary(const Field& field);
  /// An element of a list of binary values.
  std::string_view binary();

  /// Bytes read so far.
  std::size_t position() const { return at_; }

 private:
  void enter();
  bool next_field(Field& field);
  std::size_t begin_list(const Field& field, Type element);
  void expect(const Field& field, Type type) const;
  void skip(Type type);
  std::uint8_t byte();
  std::uint64_t varint();
  std::int64_t zigzag();
  void advance(std::uint64_t count);

  std::span<const std::byte> bytes_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace tessera::data
