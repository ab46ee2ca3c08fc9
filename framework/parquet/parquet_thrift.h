#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "framework/base/error.h"

namespace tessera::parquet {

/// The bytes end inside a value: the header continues beyond the available bytes, or it is damaged.
class ThriftEnd : public ConfigError {
  using ConfigError::ConfigError;
};

/// Reads Thrift's compact protocol, as far as Parquet's footer and page headers use it. Every length is checked against
/// the remaining bytes, and nesting is limited, so any input is either read or rejected. All members throw ThriftEnd if
/// the bytes end too early, and ConfigError if a value has another type than expected.
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

  /// The memory of `bytes` must outlive this object and the texts read from it.
  explicit ThriftReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  /// Reads a structure: calls `each(field)` for each field. `each` either reads the value and returns true, or returns
  /// false; then the value is skipped.
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
  /// Reads a field that is a list of `element`: calls `each()`, which reads one element, for each element.
  template <class Each>
  void list(const Field& field, Type element, Each each) {
    for (auto left = begin_list(field, element); left > 0; --left) each();
  }

  bool boolean(const Field& field);
  /// An integer field of 8, 16, 32 or 64 bits.
  std::int64_t integer(const Field& field);
  /// An integer field. Throws ConfigError if it is below `low` or above `high`.
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

}  // namespace tessera::parquet
