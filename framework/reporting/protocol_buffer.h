#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace tessera::reporting {

// The wire format of protocol buffers (protobuf.dev/programming-guides/encoding), as far as files of runs need it.
// Internal to this component.

static_assert(std::endian::native == std::endian::little, "fixed numbers are little-endian");

/// A message in the making. Its memory is kept by clear(), so that a message that is built again does not allocate.
class MessageWriter {
 public:
  explicit MessageWriter(std::size_t expected_bytes = 0) { bytes_.reserve(expected_bytes); }

  void clear() { bytes_.clear(); }
  std::string_view view() const { return bytes_; }

  /// A field of type string or bytes, or a message.
  void text(unsigned field, std::string_view words) {
    key(field, 2);
    varint(words.size());
    bytes_ += words;
  }
  /// A field of an integer type but the fixed and the zigzag ones, or bool.
  void number(unsigned field, std::int64_t value) {
    key(field, 0);
    varint(static_cast<std::uint64_t>(value));
  }
  void fixed(unsigned field, double value) {
    key(field, 1);
    raw(value);
  }
  void fixed(unsigned field, float value) {
    key(field, 5);
    raw(value);
  }

  /// Bytes outside of any field, for the frames around messages.
  void raw(std::string_view bytes) { bytes_ += bytes; }
  template <class Number>
  requires std::is_arithmetic_v<Number>
  void raw(Number value) { bytes_.append(reinterpret_cast<const char*>(&value), sizeof value); }

 private:
  void key(unsigned field, unsigned type) { varint(std::uint64_t{field} << 3U | type); }
  void varint(std::uint64_t value) {
    for (; value >= 128; value >>= 7U) bytes_ += static_cast<char>(value | 128U);
    bytes_ += static_cast<char>(value);
  }
  std::string bytes_;
};

/// Reads the fields of a message one after the other. Stops at the first that is not whole.
class MessageReader {
 public:
  explicit MessageReader(std::string_view message) : left_(message) {}

  /// False at the end. Then `field`, and `number` or `bytes` after its type.
  bool next() {
    std::uint64_t key = 0;
    if (left_.empty() || !varint(key)) return false;
    field = key >> 3U;
    switch (key & 7U) {
      case 0:
        return varint(number);
      case 1:
        return take(8);
      case 2:
        return varint(number) && take(number);
      case 5:
        return take(4);
      default:
        return false;
    }
  }
  std::uint64_t field = 0, number = 0;
  std::string_view bytes;

 private:
  bool varint(std::uint64_t& value) {
    value = 0;
    for (unsigned shift = 0; shift < 64 && !left_.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(left_.front());
      left_.remove_prefix(1);
      value |= static_cast<std::uint64_t>(byte & 127U) << shift;
      if (byte < 128) return true;
    }
    return false;
  }
  bool take(std::uint64_t count) {
    if (count > left_.size()) return false;
    bytes = left_.substr(0, count);
    left_.remove_prefix(count);
    return true;
  }
  std::string_view left_;
};

/// The number that `bytes` begins with; it has enough of them.
template <class Number>
Number fixed_number(std::string_view bytes) {
  Number value;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

}  // namespace tessera::reporting
