#include "framework/tensor/shape.h"

#include <algorithm>
#include <ostream>

namespace tessera {

Shape::Shape(std::span<const std::int64_t> dims) : rank_(dims.size()) {
  if (dims.size() > most_dims)
    throw ShapeError(text("shape: ", dims.size(), " extents came; at most ", most_dims, " fit"));
  for (const auto d : dims)
    if (d < 0) throw ShapeError(text("shape: an extent is ", d, "; extents are at least 0"));
  std::copy(dims.begin(), dims.end(), dims_.begin());
}

std::int64_t Shape::elements() const {
  std::int64_t product = 1;
  for (const auto d : dims()) product *= d;
  return product;
}

Shape Shape::with_width(std::int64_t width) const {
  Shape out = *this;
  must(rank_ > 0, "a scalar has no last extent");
  out.dims_[rank_ - 1] = width;
  return out;
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
