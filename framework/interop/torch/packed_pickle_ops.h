#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "framework/base/error.h"
#include "framework/interop/torch/packed_pickle.h"

// The instructions of a pickle, for packed_pickle.cpp.

namespace tessera::torch {
namespace packed {

using Packed = PackedValue;

/// One instruction: its opcode, its first byte, and its argument as far as it has one.
struct Op {
  unsigned char code = 0;
  std::size_t at = 0;
  std::uint64_t number = 0;
  std::string_view text = {};
};

/// The instructions of a pickle, one after the other.
class Ops {
 public:
  Ops(std::span<const std::byte> bytes, const std::string& speaker) : bytes_(bytes), speaker_(speaker) {}

  Op next() {
    Op op{static_cast<unsigned char>(number(1)), at_ - 1, 0, {}};
    switch (op.code) {
      case 'c':  // a name of two lines
        op.text = lines();
        break;
      case 0x8A:
        op.number = long_number(number(1));
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
  std::size_t bytes_of_argument(const Op& op) const {
    if (op.code == 0 || std::strchr(".N(}])tsuaeRb", op.code) != nullptr) return known(op);
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
  std::size_t known(const Op& op) const {
    if (op.code == 0) unknown(op);
    return 0;
  }
  [[noreturn]] void unknown(const Op& op) const {
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
  std::uint64_t long_number(std::uint64_t count) {
    const auto bytes = take(count);
    if (count > 8) refuse("a number of ", count, " bytes");
    std::uint64_t out = count > 0 && (std::to_integer<unsigned>(bytes.back()) & 0x80U) != 0 ? ~std::uint64_t{0} : 0;
    for (auto i = bytes.size(); i-- > 0;) out = out << 8 | std::to_integer<std::uint64_t>(bytes[i]);
    return out;
  }
  std::string_view lines() {
    const auto begin = at_;
    for (int ends = 0; ends < 2;) ends += number(1) == '\n' ? 1 : 0;
    return {reinterpret_cast<const char*>(bytes_.data()) + begin, at_ - begin - 1};
  }

  std::span<const std::byte> bytes_;
  const std::string& speaker_;
  std::size_t at_ = 0;
};

/// A range of bytes.
struct ByteRange {
  std::size_t begin = 0, end = 0;
  bool contains(std::size_t at) const { return at >= begin && at < end; }
};

/// What a first pass finds out: the values that are recalled, so that no others are kept for that; and the instructions
/// that make the value of one key. Its stack has the first instruction of each value.
class Survey {
 public:
  Survey(Ops ops, std::string_view left_out) : ops_(ops), left_out_(left_out) {
    for (auto op = ops_.next(); op.code != '.'; op = ops_.next()) {
      if (op.code == 'h' || op.code == 'j') note_recalled(op.number);
      if (!move(op)) stack_.push_back(op);
    }
  }
  bool recalled(std::uint64_t number) const { return number < recalled_.size() && recalled_[number]; }
  ByteRange left_out() const { return found_; }

 private:
  void note_recalled(std::uint64_t number) {
    if (number >= ops_.bytes()) ops_.refuse("it recalls value ", number, ", which was never kept");
    if (number >= recalled_.size()) recalled_.resize(static_cast<std::size_t>(number) + 1);
    recalled_[static_cast<std::size_t>(number)] = true;
  }
  void pop(std::size_t count) {
    if (count > stack_.size()) ops_.refuse("its stack has too few values");
    stack_.resize(stack_.size() - count);
  }
  /// Does what the instruction does with the stack, unless it pushes a new value: then false.
  bool move(const Op& op) {
    switch (op.code) {
      case 0x80:
      case 0x95:
      case 0x94:
      case 'q':
      case 'r':
      case 0x85:
        return true;
      case '(':
        marks_.push_back(stack_.size());
        return true;
      case 't':
        pop_to_mark(op, true);
        return true;
      case 'u':
      case 'e':
        pop_to_mark(op, false);
        return true;
      case 0x86:
      case 0x93:
      case 'R':
      case 0x81:
      case 'b':
      case 'a':
        pop(1);
        return true;
      case 0x87:
      case 's':
        pop(2);
        return true;
      default:
        return false;
    }
  }
  void pop_to_mark(const Op& op, bool into_one) {
    if (marks_.empty() || marks_.back() > stack_.size()) ops_.refuse("byte ", op.at, " takes items without a mark");
    const auto begin = marks_.back();
    if (op.code == 'u' && marks_.size() == 1 && !left_out_.empty()) look_for_key(begin, op.at);
    const auto first = begin < stack_.size() ? stack_[begin] : op;
    stack_.resize(begin);
    marks_.pop_back();
    if (into_one) stack_.push_back(first);
  }
  void look_for_key(std::size_t begin, std::size_t end) {
    for (auto i = begin; i + 1 < stack_.size(); i += 2)
      if (stack_[i].text == left_out_) found_ = {stack_[i + 1].at, i + 2 < stack_.size() ? stack_[i + 2].at : end};
  }

  Ops ops_;
  std::string_view left_out_;
  std::vector<Op> stack_;
  std::vector<std::size_t> marks_;
  std::vector<bool> recalled_;
  ByteRange found_;
};

}  // namespace packed

}  // namespace tessera::torch
