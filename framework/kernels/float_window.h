#pragma once

#include <algorithm>
#include <array>

#include "framework/kernels/type_conversion.h"

namespace tessera::kernels {

/// Elementwise kernels compute in fp32. These give a loop over elements of any type a few of them at a time as floats:
/// in place if they are fp32, else through a buffer that stays in the L1 cache. Internal to this component.
inline constexpr std::size_t float_window = 1024;

/// Calls body(begin, count) for consecutive ranges of [first, last): one if `floats`, else of at most float_window.
template <class Body>
void in_windows(std::size_t first, std::size_t last, bool floats, const Body& body) {
  const auto step = floats ? std::max<std::size_t>(last - first, 1) : float_window;
  for (auto begin = first; begin < last; begin += step) body(begin, std::min(step, last - begin));
}

class FloatReader {
 public:
  explicit FloatReader(const Elements& elements) : elements_(elements) {}
  bool in_place() const { return elements_.type == DType::float32; }
  /// Elements [first, first + count), valid until the next call. Null if there are no elements at all.
  const float* at(std::size_t first, std::size_t count) {
    if (elements_.empty()) return nullptr;
    const auto part = elements_.part(first, count);
    if (in_place()) return reinterpret_cast<const float*>(part.at);
    widen_range(part, {buffer_.data(), count});
    return buffer_.data();
  }

 private:
  Elements elements_;
  std::array<float, float_window> buffer_;
};

class FloatWriter {
 public:
  explicit FloatWriter(const MutableElements& elements) : elements_(elements) {}
  bool in_place() const { return elements_.type == DType::float32; }
  /// Floats for elements [first, first + count): with `update` their values, else uninitialized. What is written there
  /// reaches the elements by store().
  float* at(std::size_t first, std::size_t count, bool update) {
    part_ = elements_.part(first, count);
    if (in_place()) return reinterpret_cast<float*>(part_.at);
    if (update) widen_range(part_, {buffer_.data(), count});
    return buffer_.data();
  }
  /// Rounds what is in the floats of the last at() to the type of the elements.
  void store() {
    if (!in_place()) narrow_range({buffer_.data(), part_.size()}, part_);
  }

 private:
  MutableElements elements_, part_;
  std::array<float, float_window> buffer_;
};

}  // namespace tessera::kernels
