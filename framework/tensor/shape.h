#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <span>

#include "framework/base/error.h"

namespace tessera {

/// The extents of a contiguous row-major tensor, up to six dimensions. A plain value without heap memory.
class Shape {
 public:
  static constexpr std::size_t most_dims = 6;

  Shape() = default;
  Shape(std::initializer_list<std::int64_t> dims) : Shape(std::span<const std::int64_t>(dims.begin(), dims.size())) {}
  /// Maximum number of elements; the size in bytes then fits 64 bits for every element type.
  static constexpr std::int64_t most_elements = std::int64_t{1} << 59;

  /// Throws ShapeError for more than six extents, a negative one, or more than `most_elements` elements.
  explicit Shape(std::span<const std::int64_t> dims);

  std::size_t rank() const { return rank_; }  ///< number of dimensions
  std::int64_t operator[](std::size_t dim) const { return dims_[dim]; }
  std::span<const std::int64_t> dims() const { return {dims_.data(), rank_}; }
  std::int64_t elements() const;                                            ///< product of all extents; 1 for a scalar
  std::int64_t width() const { return rank_ == 0 ? 1 : dims_[rank_ - 1]; }  ///< the last extent
  std::int64_t rows() const { return width() == 0 ? 0 : elements() / width(); }  ///< product of the others

  /// This shape with the last extent replaced by `width`. Throws BugError for a scalar.
  Shape with_width(std::int64_t width) const;

  bool operator==(const Shape& other) const = default;

 private:
  std::array<std::int64_t, most_dims> dims_ = {};
  std::size_t rank_ = 0;
};

std::ostream& operator<<(std::ostream& out, const Shape& shape);  ///< "[4, 256, 768]"

}  // namespace tessera
