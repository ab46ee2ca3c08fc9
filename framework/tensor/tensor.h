#pragma once

#include <cstddef>
#include <span>

#include "framework/tensor/dtype.h"
#include "framework/tensor/shape.h"

namespace tessera {

/// Typed elements in row-major order, in memory that somebody else owns: an Arena's block, a flat buffer of
/// parameters, a mapped file. Cheap to copy; copies see the same elements. Valid as long as its owner keeps the memory.
class Tensor {
 public:
  Tensor() = default;
  /// `memory` holds at least shape.elements() elements of `type`. Throws ShapeError otherwise.
  Tensor(std::span<std::byte> memory, DType type, const Shape& shape);
  template <class T>
  Tensor(std::span<T> elements, const Shape& shape)
      : Tensor(std::as_writable_bytes(elements), TypeOf<T>::value, shape) {}

  DType dtype() const { return type_; }
  const Shape& shape() const { return shape_; }
  std::int64_t elements() const { return shape_.elements(); }
  std::size_t bytes() const { return static_cast<std::size_t>(elements()) * size_of(type_); }
  bool empty() const { return data_ == nullptr; }

  /// The elements as T. Throws ShapeError when they are of another type.
  template <class T>
  std::span<T> as() const {
    if (TypeOf<std::remove_const_t<T>>::value != type_) refuse(TypeOf<std::remove_const_t<T>>::value);
    return {reinterpret_cast<T*>(data_), static_cast<std::size_t>(elements())};
  }
  std::span<float> floats() const { return as<float>(); }
  std::span<std::byte> raw() const { return {data_, bytes()}; }

  /// The same elements under another shape of as many. Throws ShapeError otherwise.
  Tensor reshaped(const Shape& shape) const;
  /// Rows [first, first + count) of the first dim.
  Tensor slice(std::int64_t first, std::int64_t count) const;

 private:
  [[noreturn]] void refuse(DType wanted) const;
  std::byte* data_ = nullptr;
  DType type_ = DType::float32;
  Shape shape_;
};

}  // namespace tessera
