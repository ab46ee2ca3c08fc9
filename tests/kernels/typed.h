#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "framework/kernels/type_conversion.h"

namespace tessera::kernels {

/// Elements of one type, and the values that they began with, rounded to it.
class Typed {
 public:
  Typed(DType type, std::vector<float> values)
      : type_(type), memory_(values.size() * size_of(type)), values_(std::move(values)) {
    narrow_range(values_, elements());
    widen_range(elements(), values_);
  }
  MutableElements elements() { return {memory_.data(), values_.size(), type_}; }
  /// The values now in the elements.
  std::vector<float> now() {
    std::vector<float> out(values_.size());
    widen_range(elements(), out);
    return out;
  }
  float at(std::int64_t i) const { return values_[static_cast<std::size_t>(i)]; }

 private:
  DType type_;
  std::vector<std::byte> memory_;
  std::vector<float> values_;
};

}  // namespace tessera::kernels
