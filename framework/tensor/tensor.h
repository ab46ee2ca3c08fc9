#pragma once

#include <cstddef>
#include <span>

#include "framework/tensor/dtype.h"
#include "framework/tensor/shape.h"

namespace tessera {

/// A view of typed elements in row-major order, in memory that someone else owns: a block of an Arena, a flat parameter
/// buffer, a mapped file. Cheap to copy; copies refer to the same elements. Valid as long as the owner keeps the
/// memory.
class Tensor {
 public:
  Tensor() = default;
  /// Throws ShapeError if `memory` is smaller than shape.elements() elements of `type`.
  Tensor(std::span<std::byte> memory, DType type, const Shape& shape);
  template <class T>
  Tensor(std::span<T> elements, const Shape& shape)
      : Tensor(std::as_writable_bytes(elements), TypeOf<T>::value, shape) {}

  /// A tensor whose elements are not in memory as such: it has only a type and a shape. Reading elements throws
  /// BugError.
  static Tensor without_elements(DType type, const Shape& shape) {
    Tensor out;
    out.type_ = type;
    out.shape_ = shape;
    return out;
  }

  DType dtype() const { return type_; }
  const Shape& shape() const { return shape_; }
  std::int64_t elements() const { return shape_.elements(); }
  std::size_t bytes() const { return static_cast<std::size_t>(elements()) * size_of(type_); }  ///< size of all elements
  /// Default-constructed: no elements.
  bool empty() const { return data_ == nullptr; }

  /// The elements as T. Throws ShapeError if T is not the C++ type of dtype().
  template <class T>
  std::span<T> as() const {
    if (TypeOf<std::remove_const_t<T>>::value != type_) refuse(TypeOf<std::remove_const_t<T>>::value);
    if (data_ == nullptr && elements() != 0) refuse_without_elements();
    return {reinterpret_cast<T*>(data_), static_cast<std::size_t>(elements())};
  }
  /// The elements of a float32 tensor; throws ShapeError for another type.
  std::span<float> floats() const { return as<float>(); }
  /// The elements as bytes.
  std::span<std::byte> raw() const {
    if (data_ == nullptr && elements() != 0) refuse_without_elements();
    return {data_, bytes()};
  }

  /// A view of the same elements with another shape. Throws ShapeError if the number of elements differs.
  Tensor reshaped(const Shape& shape) const;
  /// A view of the rows [first, first + count) of the first dimension. Throws ShapeError if they do not exist.
  Tensor slice(std::int64_t first, std::int64_t count) const;

 private:
  [[noreturn]] void refuse(DType wanted) const;
  [[noreturn]] void refuse_without_elements() const;
  std::byte* data_ = nullptr;
  DType type_ = DType::float32;
  Shape shape_;
};

}  // namespace tessera
