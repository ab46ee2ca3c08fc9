#include "framework/kernels/gemm_stored.h"

#include <algorithm>

#include "framework/kernels/gemm_packed.h"
#include "framework/kernels/round_range.h"
#include "framework/kernels/scratch.h"
#include "framework/kernels/task_grid.h"

namespace tessera::kernels {
namespace {

/// Rows of a box as packing functions read them.
struct RowsToPack : PlainRows {
  bool rounds = false;  ///< floats, to be rounded to the type of the factor once they are packed
};

/// In place, or a copy in `memory`.
RowsToPack rows_to_pack(const TileKernels& t, const Factor& b, const MatrixBox& box, const Scratch& memory) {
  const auto in_place = plain_rows(*b.stored, box.row, box.rows, box.col);
  // The bits must be those of elements of the type of b: exact if that is float, or if they have it.
  const bool readable = in_place.at != nullptr && (in_place.type == b.type() || b.type() == DType::float32);
  // Where k is the index of columns, tiles of pairs read two elements as one word.
  const bool whole_words =
      t.elements == 1 || b.along != 1 ||
      (in_place.stride % t.elements == 0 && reinterpret_cast<std::uintptr_t>(in_place.at) % sizeof(float) == 0);
  if (readable && whole_words) return {in_place};
  if (t.elements == 1 && in_place.at != nullptr && in_place.type == DType::float32) return {in_place, true};
  const MutableElements copy(reinterpret_cast<std::byte*>(memory.data()), static_cast<std::size_t>(box.rows * box.cols),
                             b.type());
  read_box(*b.stored, box, b.type(), copy);
  return {{copy.at, box.cols, b.type()}};
}

/// Rounds the words [word, word + words) of packed panels of `cols` columns.
void round_panels(const TileKernels& t, DType type, std::int64_t cols, std::int64_t word, std::int64_t words,
                  std::int64_t apart, float* to) {
  for (std::int64_t col = 0; col < cols; col += t.cols, to += apart) {
    const auto width = ceil_div(std::min(t.cols, cols - col), t.vector) * t.vector;
    round_range(type, {to + word * width, static_cast<std::size_t>(words * width)});
  }
}

/// k is the index of columns: a panel is some rows of the matrix.
void pack_rows(const TileKernels& t, const Factor& b, std::int64_t first, std::int64_t last, std::int64_t k,
               std::int64_t elements, std::int64_t apart, float* to) {
  const Scratch memory(static_cast<std::size_t>(t.cols * elements));
  for (; first < last; first += t.cols, to += apart) {
    const auto cols = std::min(t.cols, last - first);
    const auto rows = rows_to_pack(t, b, {first, cols, k, elements}, memory);
    packing_of(t, rows.type).along(rows.at, rows.stride, ceil_div(elements, t.elements), cols, apart, to);
    if (rows.rounds) round_panels(t, b.type(), cols, 0, elements, apart, to);
  }
}

/// The rows of one run of k, `word` words after the beginning of the panels.
void pack_run(const TileKernels& t, const PlainRows& rows, std::int64_t run, std::int64_t cols, std::int64_t word,
              std::int64_t apart, float* to) {
  const auto size = static_cast<std::int64_t>(size_of(rows.type));
  for (std::int64_t col = 0; col < cols; col += t.cols, to += apart) {
    const auto some = std::min(t.cols, cols - col);
    const auto width = ceil_div(some, t.vector) * t.vector;
    packing_of(t, rows.type).across(rows.at + col * size, rows.stride, run, some, apart, to + word * width);
  }
}

/// k is the index of rows: they are packed in runs that lie in one block.
void pack_columns(const TileKernels& t, const Factor& b, std::int64_t first, std::int64_t last, std::int64_t k,
                  std::int64_t elements, std::int64_t apart, float* to) {
  const Scratch memory(static_cast<std::size_t>((last - first) * elements));
  for (std::int64_t done = 0; done < elements;) {
    auto run = std::min(elements - done, rows_in_block(*b.stored, k + done));
    if (run % t.elements != 0) run = elements - done;  // a word must not be in two runs
    const auto rows = rows_to_pack(t, b, {k + done, run, first, last - first}, memory);
    if (run == elements)
      packing_of(t, rows.type).across(rows.at, rows.stride, run, last - first, apart, to);
    else
      pack_run(t, rows, run, last - first, done / t.elements, apart, to);
    if (rows.rounds) round_panels(t, b.type(), last - first, done, run, apart, to);
    done += run;
  }
}

}  // namespace

MatrixBox box_of(const Factor& factor, std::int64_t first, std::int64_t count, std::int64_t k, std::int64_t steps) {
  return factor.along == 1 ? MatrixBox{first, count, k, steps} : MatrixBox{k, steps, first, count};
}

PlainRows rows_in_place(const Factor& factor, std::int64_t first, std::int64_t count, std::int64_t k,
                        std::int64_t steps) {
  if (count <= 0 || steps <= 0) return {};
  if (factor.stored == nullptr)
    return {factor.element(first, k), factor.along == 1 ? factor.across : factor.along, factor.type()};
  const auto box = box_of(factor, first, count, k, steps);
  return plain_rows(*factor.stored, box.row, box.rows, box.col);
}

void pack_stored(const TileKernels& t, const Factor& b, std::int64_t first, std::int64_t last, std::int64_t k,
                 std::int64_t elements, std::int64_t apart, float* to) {
  (b.along == 1 ? pack_rows : pack_columns)(t, b, first, last, k, elements, apart, to);
}

}  // namespace tessera::kernels
