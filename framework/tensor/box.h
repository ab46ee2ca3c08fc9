#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "framework/tensor/shape.h"

namespace tessera {

/// A box (hyper-rectangle) of indices in an unsharded tensor: [begin, begin + extent) in each dimension. A scalar is a
/// box of one dimension and extent 1.
struct Box {
  std::vector<std::int64_t> begin, extent;

  static Box of(const std::vector<std::int64_t>& offsets, const Shape& extents);
  /// All of a tensor of that shape.
  static Box whole(const Shape& shape) { return of(std::vector<std::int64_t>(shape.rank(), 0), shape); }
  std::int64_t elements() const;
  std::int64_t elements_of_row() const;  ///< of all dimensions but the first
  bool operator==(const Box& other) const = default;
};

/// The indices that both boxes have; nothing if there are none.
std::optional<Box> intersection(const Box& a, const Box& b);

/// Whether the elements of `inner` are contiguous in memory that has the elements of `outer`.
bool is_contiguous(const Box& inner, const Box& outer);

/// The position of the element with this index in memory that has the elements of `box`, in row-major order.
std::int64_t position_in(const Box& box, const std::vector<std::int64_t>& index);

}  // namespace tessera
