#include "framework/checkpoint/box.h"

#include <algorithm>
#include <numeric>

#include "framework/checkpoint/copy_converted.h"

namespace tessera {
namespace {

std::int64_t product(const std::vector<std::int64_t>& extents, std::size_t from) {
  return std::accumulate(extents.begin() + static_cast<std::ptrdiff_t>(from), extents.end(), std::int64_t{1},
                         std::multiplies<>());
}

/// The dims from `result` on lie in one piece of `part` in both memories.
std::size_t first_joined_dim(const Box& part, const Box& a, const Box& b) {
  std::size_t dim = part.extent.size() - 1;
  while (dim > 0 && part.extent[dim] == a.extent[dim] && part.extent[dim] == b.extent[dim]) --dim;
  return dim;
}

std::int64_t place_of(const std::vector<std::int64_t>& index, const Box& box) {
  std::int64_t place = 0;
  for (std::size_t dim = 0; dim < index.size(); ++dim) place = place * box.extent[dim] + (index[dim] - box.begin[dim]);
  return place;
}

Tensor run_of(const Tensor& tensor, std::int64_t first, std::int64_t count) {
  const auto size = size_of(tensor.dtype());
  return Tensor(tensor.raw().subspan(static_cast<std::size_t>(first) * size, static_cast<std::size_t>(count) * size),
                tensor.dtype(), Shape{count});
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

std::int64_t first_element(const Box& inner, const Box& outer) { return place_of(inner.begin, outer); }

void copy_box(const Box& part, const Tensor& from, const Box& from_box, const Tensor& into, const Box& into_box) {
  const auto joined = first_joined_dim(part, from_box, into_box);
  const auto run = product(part.extent, joined);
  auto index = part.begin;
  while (true) {
    copy_converted(run_of(from, place_of(index, from_box), run), run_of(into, place_of(index, into_box), run));
    auto dim = joined;
    while (dim > 0 && ++index[dim - 1] == part.begin[dim - 1] + part.extent[dim - 1]) {
      index[dim - 1] = part.begin[dim - 1];
      --dim;
    }
    if (dim == 0) return;
  }
}

}  // namespace tessera
