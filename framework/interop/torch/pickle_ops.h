#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "framework/base/error.h"

// The instructions of a pickle, for pickle.cpp and packed_pickle.cpp. Source: CPython's pickletools.

namespace tessera::torch {
/// One instruction of a pickle: its opcode, its first byte, and its argument as far as it has one.
struct PickleOp {
  unsigned char code = 0;
  std::size_t at = 0;
  std::uint64_t number = 0;    ///< of a wide one the lowest 8 bytes
  std::string_view text = {};  ///< of a name two lines; of a wide number all bytes
};

/// The instructions of a pickle, one after the other; those that do more than build data are refused with a
/// ConfigError that begins with `speaker`, and so is truncated data.
class PickleOps {
 public:
  PickleOps(std::span<const std::byte> bytes, const std::string& speaker) : bytes_(bytes), speaker_(speaker) {}

  PickleOp next() {
    PickleOp op{static_cast<unsigned char>(number(1)), at_ - 1, 0, {}};
    switch (op.code) {
      case 'c':  // a name of two lines
        op.text = lines();
        break;
      case 0x8A:
        op.text = words(number(1));
        op.number = long_number(op.text);
        break;
      case 0x8C:
      case 'C':
        op.text = words(number(1));
        break;
      case 'X':
      case 'B':
        op.text = words(number(4));
        break;
      case 0x8D:
      case 0x8E:
        op.text = words(number(8));
        break;
      default:
        op.number = number(bytes_of_argument(op));
    }
    return op;
  }

  std::size_t bytes() const { return bytes_.size(); }
  template <class... Words>
  [[noreturn]] void refuse(const Words&... message) const {
    throw ConfigError(text(speaker_, ": as a pickle: ", message...));
  }

 private:
  std::size_t bytes_of_argument(const PickleOp& op) const {
    if (op.code != 0 && std::strchr(".N(}])tsuaeRbQ", op.code) != nullptr) return 0;
    switch (op.code) {
      case 0x88:
      case 0x89:
      case 0x85:
      case 0x86:
      case 0x87:
      case 0x93:
      case 0x94:
      case 0x81:
        return 0;
      case 0x80:
      case 'K':
      case 'q':
      case 'h':
        return 1;
      case 'M':
        return 2;
      case 'J':
      case 'r':
      case 'j':
        return 4;
      case 0x95:
      case 'G':
        return 8;
      default:
        unknown(op);
    }
  }
  [[noreturn]] void unknown(const PickleOp& op) const {
    constexpr const char* digits = "0123456789abcdef";
    refuse("opcode 0x", digits[op.code >> 4], digits[op.code & 15], " at byte ", op.at,
           " is not among those that make data");
  }

  std::span<const std::byte> take(std::uint64_t count) {
    if (count > bytes_.size() - at_) refuse("it ends at byte ", bytes_.size(), " in the middle of a value");
    const auto out = bytes_.subspan(at_, static_cast<std::size_t>(count));
    at_ += static_cast<std::size_t>(count);
    return out;
  }
  std::uint64_t number(std::size_t size) {
    std::uint64_t out = 0;
    const auto bytes = take(size);
    for (std::size_t i = size; i-- > 0;) out = out << 8 | std::to_integer<std::uint64_t>(bytes[i]);
    return out;
  }
  std::string_view words(std::uint64_t count) {
    const auto bytes = take(count);
    if (count > 0xFFFFFFFF) refuse("a text of ", count, " bytes");
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  std::uint64_t long_number(std::string_view bytes) const {
    if (bytes.size() > 16) refuse("a number of ", bytes.size(), " bytes");
    std::uint64_t out =
        !bytes.empty() && (static_cast<unsigned char>(bytes.back()) & 0x80U) != 0 ? ~std::uint64_t{0} : 0;
    for (auto i = std::min<std::size_t>(bytes.size(), 8); i-- > 0;)
      out = out << 8 | static_cast<unsigned char>(bytes[i]);
    return out;
  }
  std::string_view lines() {
    const auto begin = at_;
    for (int ends = 0; ends < 2;) {
      ends += number(1) == '\n' ? 1 : 0;
      if (at_ - begin > 2000) refuse("a name of more than 2000 bytes");
    }
    return {reinterpret_cast<const char*>(bytes_.data()) + begin, at_ - begin - 1};
  }

  std::span<const std::byte> bytes_;
  const std::string& speaker_;
  std::size_t at_ = 0;
};

}  // namespace tessera::torch
