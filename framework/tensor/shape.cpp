#include "framework/tensor/shape.h"

#include <algorithm>
#include <ostream>

namespace tessera {

Shape::Shape(std::span<const std::int64_t> dims) : rank_(dims.size()) {
  if (dims.size() > most_dims)
    throw ShapeError(text("shape: ", dims.size(), " dimensions were given; at most ", most_dims, " are supported"));
  for (const auto d : dims)
    if (d < 0) throw ShapeError(text("shape: an extent is ", d, "; extents are at least 0"));
  std::copy(dims.begin(), dims.end(), dims_.begin());
  if (std::find(dims.begin(), dims.end(), 0) != dims.end()) return;
  std::int64_t product = 1;
  for (const auto d : dims)
    if (__builtin_mul_overflow(product, d, &product) || product > most_elements)
      throw ShapeError(text("shape: ", *this, " has more than ", most_elements, " elements; make an extent smaller"));
}

std::int64_t Shape::elements() const {
  std::int64_t product = 1;
  for (const auto d : dims()) product *= d;
  return product;
}

Shape Shape::with_width(std::int64_t width) const {
  must(rank_ > 0, "a scalar has no last extent");
  auto extents = dims_;
  extents[rank_ - 1] = width;
  return Shape(std::span<const std::int64_t>(extents.data(), rank_));
}

std::ostream& operator<<(std::ostream& out, const Shape& shape) {
  const char* comma = "";
  out << "[";
  for (const auto d : shape.dims()) {
    out << comma << d;
    comma = ", ";
  }
  return out << "]";
}

}  // namespace tessera
