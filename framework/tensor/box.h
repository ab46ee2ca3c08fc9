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

  /// The box that begins at `offsets` and has the extents `extents`, one number per dimension.
  static Box of(const std::vector<std::int64_t>& offsets, const Shape& extents);
  /// The box of all indices of a tensor of shape `shape`.
  static Box whole(const Shape& shape) { return of(std::vector<std::int64_t>(shape.rank(), 0), shape); }
  std::int64_t elements() const;         ///< number of elements: the product of all extents
  std::int64_t elements_of_row() const;  ///< product of all extents but the first
  bool operator==(const Box& other) const = default;
};

/// The box of indices that a and b, which have the same rank, have in common; nullopt if there are none.
std::optional<Box> intersection(const Box& a, const Box& b);

/// Whether the elements of `inner` are contiguous in memory that holds the elements of `outer` in row-major order.
bool is_contiguous(const Box& inner, const Box& outer);

/// Position of the element at `index`, an index in the unsharded tensor, in memory that holds the elements of `box` in
/// row-major order.
std::int64_t position_in(const Box& box, const std::vector<std::int64_t>& index);

}  // namespace tessera
