#pragma once

#include <cstddef>
#include <cstdint>
#include <ranges>
#include <span>

#include "framework/tensor/tensor.h"

namespace tessera::kernels {

/// A view of float32, bfloat16 or float16 elements that a kernel reads; the parameter type for operands that may be
/// stored in 16 bits. Converts from tensors and from contiguous floats. Owns nothing.
struct Elements {
  const std::byte* at = nullptr;  ///< the first element
  std::size_t count = 0;
  DType type = DType::float32;

  Elements() = default;
  Elements(const std::byte* first, std::size_t size, DType of) : at(first), count(size), type(of) {}
  Elements(const Tensor& tensor)  // NOLINT(google-explicit-constructor): kernels are called with tensors
      : Elements(tensor.raw().data(), static_cast<std::size_t>(tensor.elements()), tensor.dtype()) {}
  template <std::ranges::contiguous_range Floats>
  requires std::same_as < std::remove_cv_t<std::ranges::range_value_t<Floats>>,
  float > Elements(const Floats& floats)  // NOLINT(google-explicit-constructor)
      : Elements(reinterpret_cast<const std::byte*>(std::ranges::data(floats)), std::ranges::size(floats),
                 DType::float32) {}

  std::size_t size() const { return count; }
  bool empty() const { return count == 0; }
  /// Elements [first, first + size).
  Elements part(std::size_t first, std::size_t size) const { return {at + first * size_of(type), size, type}; }
};

/// A view of elements that a kernel writes; otherwise as Elements. Kernels compute results in fp32 and round them once
/// to `type`.
struct MutableElements {
  std::byte* at = nullptr;
  std::size_t count = 0;
  DType type = DType::float32;

  MutableElements() = default;
  MutableElements(std::byte* first, std::size_t size, DType of) : at(first), count(size), type(of) {}
  MutableElements(const Tensor& tensor)  // NOLINT(google-explicit-constructor)
      : MutableElements(tensor.raw().data(), static_cast<std::size_t>(tensor.elements()), tensor.dtype()) {}
  template <std::ranges::contiguous_range Floats>
  requires std::same_as < std::ranges::range_reference_t<Floats>,
  float& > MutableElements(Floats&& floats)  // NOLINT(google-explicit-constructor)
      : MutableElements(reinterpret_cast<std::byte*>(std::ranges::data(floats)), std::ranges::size(floats),
                        DType::float32) {}

  std::size_t size() const { return count; }
  bool empty() const { return count == 0; }
  /// Elements [first, first + size).
  MutableElements part(std::size_t first, std::size_t size) const { return {at + first * size_of(type), size, type}; }
  operator Elements() const { return {at, count, type}; }  // NOLINT(google-explicit-constructor)
};

}  // namespace tessera::kernels
