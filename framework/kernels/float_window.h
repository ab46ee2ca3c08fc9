#pragma once

#include <algorithm>
#include <array>

#include "framework/kernels/type_conversion.h"

namespace tessera::kernels {

// Elementwise kernels compute in fp32. FloatReader and FloatWriter give a loop access to elements of any type as
// floats, one window at a time: in place if the elements are fp32, else through a buffer that stays in the L1 cache.
// Internal to this component.

/// Maximum number of elements in a window that is converted.
inline constexpr std::size_t float_window = 1024;

/// Calls body(begin, count) for consecutive windows of [first, last): one window if `floats` (nothing is converted),
/// else windows of at most float_window elements.
template <class Body>
void in_windows(std::size_t first, std::size_t last, bool floats, const Body& body) {
  const auto step = floats ? std::max<std::size_t>(last - first, 1) : float_window;
  for (auto begin = first; begin < last; begin += step) body(begin, std::min(step, last - begin));
}

/// Reads elements of any type as floats. Its buffer makes it a 4 KiB object: one per tile, on the stack.
class FloatReader {
 public:
  explicit FloatReader(const Elements& elements) : elements_(elements) {}
  bool in_place() const { return elements_.type == DType::float32; }
  /// Elements [first, first + count) as floats, valid until the next call; count is at most float_window unless
  /// in_place(). Null if the operand is empty.
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

/// Writes elements of any type as floats. As FloatReader, a 4 KiB object.
class FloatWriter {
 public:
  explicit FloatWriter(const MutableElements& elements) : elements_(elements) {}
  bool in_place() const { return elements_.type == DType::float32; }
  /// Floats for elements [first, first + count): their current values if `update`, else uninitialized. Values written
  /// there are stored in the elements by store(). `count` is at most float_window unless in_place().
  float* at(std::size_t first, std::size_t count, bool update) {
    part_ = elements_.part(first, count);
    if (in_place()) return reinterpret_cast<float*>(part_.at);
    if (update) widen_range(part_, {buffer_.data(), count});
    return buffer_.data();
  }
  /// Rounds the floats of the last at() to the type of the elements and stores them.
  void store() {
    if (!in_place()) narrow_range({buffer_.data(), part_.size()}, part_);
  }

 private:
  MutableElements elements_, part_;
  std::array<float, float_window> buffer_;
};

}  // namespace tessera::kernels
