#include "framework/tensor/strided.h"

#include <algorithm>

#include "framework/base/error.h"

namespace tessera {
namespace {

using Extents = std::array<std::int64_t, 4>;

void check_inside(const Extents& extents, const StridedRows& rows, std::size_t elements, const char* which) {
  std::int64_t first = rows.offset, end = rows.offset + extents[3];
  for (std::size_t dim = 0; dim < rows.strides.size(); ++dim) {
    const auto reach = (extents[dim] - 1) * rows.strides[dim];
    (reach < 0 ? first : end) += reach;
  }
  if (first < 0 || end > static_cast<std::int64_t>(elements))
    throw ShapeError(text("copy_strided: the rows of `", which, "` are the elements ", first, " to ", end,
                          " of an array of ", elements, "; they must be inside"));
}

}  // namespace

void copy_strided(const Extents& extents, std::span<const float> from, const StridedRows& from_rows,
                  std::span<float> to, const StridedRows& to_rows) {
  if (std::any_of(extents.begin(), extents.end(), [](std::int64_t extent) { return extent <= 0; })) return;
  check_inside(extents, from_rows, from.size(), "from");
  check_inside(extents, to_rows, to.size(), "to");
  const auto row = [](const StridedRows& rows, std::int64_t i, std::int64_t j, std::int64_t k) {
    return rows.offset + i * rows.strides[0] + j * rows.strides[1] + k * rows.strides[2];
  };
  for (std::int64_t i = 0; i < extents[0]; ++i)
    for (std::int64_t j = 0; j < extents[1]; ++j)
      for (std::int64_t k = 0; k < extents[2]; ++k)
        std::copy_n(from.begin() + row(from_rows, i, j, k), extents[3], to.begin() + row(to_rows, i, j, k));
}

}  // namespace tessera
