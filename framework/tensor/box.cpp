#include "framework/tensor/box.h"

#include <algorithm>
#include <numeric>

namespace tessera {
namespace {

std::int64_t product(const std::vector<std::int64_t>& extents, std::size_t from) {
  return std::accumulate(extents.begin() + static_cast<std::ptrdiff_t>(from), extents.end(), std::int64_t{1},
                         std::multiplies<>());
}

}  // namespace

Box Box::of(const std::vector<std::int64_t>& offsets, const Shape& extents) {
  if (extents.rank() == 0) return {{0}, {1}};
  return {offsets, {extents.dims().begin(), extents.dims().end()}};
}

std::int64_t Box::elements() const { return product(extent, 0); }
std::int64_t Box::elements_of_row() const { return product(extent, 1); }

std::optional<Box> intersection(const Box& a, const Box& b) {
  Box out = a;
  for (std::size_t dim = 0; dim < a.begin.size(); ++dim) {
    const auto end = std::min(a.begin[dim] + a.extent[dim], b.begin[dim] + b.extent[dim]);
    out.begin[dim] = std::max(a.begin[dim], b.begin[dim]);
    out.extent[dim] = end - out.begin[dim];
    if (out.extent[dim] <= 0) return std::nullopt;
  }
  return out;
}

bool is_contiguous(const Box& inner, const Box& outer) {
  std::size_t dim = 0;
  while (dim < inner.extent.size() && inner.extent[dim] == 1) ++dim;
  for (++dim; dim < inner.extent.size(); ++dim)
    if (inner.extent[dim] != outer.extent[dim]) return false;
  return true;
}

std::int64_t position_in(const Box& box, const std::vector<std::int64_t>& index) {
  std::int64_t position = 0;
  for (std::size_t dim = 0; dim < index.size(); ++dim)
    position = position * box.extent[dim] + (index[dim] - box.begin[dim]);
  return position;
}

}  // namespace tessera
