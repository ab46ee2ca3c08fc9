#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "framework/tensor/tensor.h"

namespace tessera {

/// A box of indices in an unsplit tensor: from `begin`, `extent` many, per dim. A scalar is a box of one dim and
/// extent 1.
struct Box {
  std::vector<std::int64_t> begin, extent;

  static Box of(const std::vector<std::int64_t>& offsets, const Shape& extents);
  std::int64_t elements() const;
  std::int64_t elements_of_row() const;  ///< all dims but the first
  bool operator==(const Box& other) const = default;
};

/// What two boxes share; nothing when that is empty.
std::optional<Box> intersection(const Box& a, const Box& b);

/// Whether the elements of `inner` lie in one piece in the memory of `outer`.
bool is_contiguous(const Box& inner, const Box& outer);

/// The place of the first element of `inner` in the memory of `outer`.
std::int64_t first_element(const Box& inner, const Box& outer);

/// Copy the elements of `part` from memory that holds `from_box` to memory that holds `into_box`, converting as
/// copy_converted does.
void copy_box(const Box& part, const Tensor& from, const Box& from_box, const Tensor& into, const Box& into_box);

}  // namespace tessera
