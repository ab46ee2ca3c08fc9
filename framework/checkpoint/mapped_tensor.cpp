#include "framework/checkpoint/mapped_tensor.h"

namespace tessera::checkpoint {

std::optional<MappedTensor> part_of(const MappedTensor& whole, const Box& all, const Box& part, DType type,
                                    const Shape& shape) {
  const auto size = size_of(type);
  if (whole.tensor.dtype() != type || intersection(all, part) != part || !is_contiguous(part, all)) return std::nullopt;
  const auto elements = whole.tensor.raw().subspan(static_cast<std::size_t>(position_in(all, part.begin)) * size,
                                                   static_cast<std::size_t>(shape.elements()) * size);
  if (reinterpret_cast<std::uintptr_t>(elements.data()) % size != 0) return std::nullopt;
  return MappedTensor{whole.file, Tensor(elements, type, shape)};
}

}  // namespace tessera::checkpoint
