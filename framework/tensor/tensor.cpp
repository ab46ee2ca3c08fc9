#include "framework/tensor/tensor.h"

namespace tessera {

Tensor::Tensor(std::span<std::byte> memory, DType type, const Shape& shape)
    : data_(memory.data()), type_(type), shape_(shape) {
  if (memory.size() < bytes())
    throw ShapeError(text("tensor: ", shape, " of ", name_of(type), " needs ", bytes(), " bytes, but its memory has ",
                          memory.size()));
}

Tensor Tensor::reshaped(const Shape& shape) const {
  if (shape.elements() != elements()) throw ShapeError(text("tensor: ", shape_, " cannot be reshaped to ", shape));
  Tensor out = *this;
  out.shape_ = shape;
  return out;
}

Tensor Tensor::slice(std::int64_t first, std::int64_t count) const {
  if (shape_.rank() == 0 || first < 0 || count < 0 || first + count > shape_[0])
    throw ShapeError(text("tensor: rows ", first, " to ", first + count, " of ", shape_, " do not exist"));
  std::array<std::int64_t, Shape::most_dims> dims{};
  std::copy(shape_.dims().begin(), shape_.dims().end(), dims.begin());
  dims[0] = count;
  // shape_[0] may be 0: then there are no rows to divide by.
  const auto row_bytes = shape_[0] == 0 ? 0 : bytes() / static_cast<std::size_t>(shape_[0]);
  Tensor out = *this;
  out.shape_ = Shape(std::span<const std::int64_t>(dims.data(), shape_.rank()));
  out.data_ = data_ + row_bytes * static_cast<std::size_t>(first);
  return out;
}

void Tensor::refuse(DType wanted) const {
  throw ShapeError(text("tensor: ", shape_, " holds ", name_of(type_), "; ", name_of(wanted), " was expected"));
}

void Tensor::refuse_without_elements() const {
  throw BugError(text("elements of a tensor ", shape_, " are read that are not in memory: they are stored in a file"));
}

}  // namespace tessera
