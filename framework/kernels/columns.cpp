#include "framework/kernels/columns.h"

#include <algorithm>
#include <cstring>

#include "framework/base/error.h"
#include "framework/kernels/extents.h"
#include "framework/kernels/float_window.h"

namespace tessera::kernels {
namespace {

void check(std::int64_t rows, const Elements& from, std::int64_t from_width, const Elements& to, std::int64_t to_width,
           const ColumnBlocks& b) {
  expect_values("columns", "from", from.size(), rows * from_width);
  expect_values("columns", "to", to.size(), rows * to_width);
  const auto last_from = b.from_first + (b.blocks - 1) * b.from_step + b.width,
             last_to = b.to_first + (b.blocks - 1) * b.to_step + b.width;
  if (b.blocks < 1 || b.width < 0 || b.from_first < 0 || b.to_first < 0 || last_from > from_width || last_to > to_width)
    throw ShapeError(
        text("columns: ", b.blocks, " blocks of ", b.width, " columns leave rows of ", from_width, " and ", to_width));
}

std::size_t rows_of_a_tile(const ColumnBlocks& b) {
  const auto columns = static_cast<std::size_t>(std::max<std::int64_t>(b.blocks * b.width, 1));
  return std::max<std::size_t>(1, 8192 / columns);
}

}  // namespace

void copy_columns(Threads& threads, std::int64_t rows, const Elements& from, std::int64_t from_width,
                  const MutableElements& to, std::int64_t to_width, const ColumnBlocks& b) {
  check(rows, from, from_width, to, to_width, b);
  if (from.type != to.type) throw ShapeError("columns: the element types differ");
  const auto size = static_cast<std::int64_t>(size_of(from.type));
  threads.parallel_for(static_cast<std::size_t>(rows), rows_of_a_tile(b), [&](std::size_t first, std::size_t last) {
    for (auto r = static_cast<std::int64_t>(first); r < static_cast<std::int64_t>(last); ++r)
      for (std::int64_t i = 0; i < b.blocks; ++i)
        std::memcpy(to.at + (r * to_width + b.to_first + i * b.to_step) * size,
                    from.at + (r * from_width + b.from_first + i * b.from_step) * size,
                    static_cast<std::size_t>(b.width * size));
  });
}

void add_columns(Threads& threads, std::int64_t rows, const Elements& from, std::int64_t from_width,
                 const MutableElements& to, std::int64_t to_width, const ColumnBlocks& b) {
  check(rows, from, from_width, to, to_width, b);
  // Blocks that are added to the same block of `to` are summed in fp32 before the result is rounded, one window of
  // columns after the other.
  const auto summed = b.to_step == 0 ? b.blocks : 1, outer = b.blocks / summed;
  const auto width = static_cast<std::size_t>(b.width);
  threads.parallel_for(static_cast<std::size_t>(rows), rows_of_a_tile(b), [&](std::size_t first, std::size_t last) {
    FloatReader in(from);
    FloatWriter out(to);
    for (auto r = static_cast<std::int64_t>(first); r < static_cast<std::int64_t>(last); ++r)
      for (std::int64_t i = 0; i < outer; ++i)
        in_windows(0, width, in.in_place() && out.in_place(), [&](std::size_t begin, std::size_t count) {
          float* y = out.at(static_cast<std::size_t>(r * to_width + b.to_first + i * b.to_step) + begin, count, true);
          for (std::int64_t k = 0; k < summed; ++k) {
            const float* x =
                in.at(static_cast<std::size_t>(r * from_width + b.from_first + (i * summed + k) * b.from_step) + begin,
                      count);
            for (std::size_t c = 0; c < count; ++c) y[c] += x[c];
          }
          out.store();
        });
  });
}

}  // namespace tessera::kernels
