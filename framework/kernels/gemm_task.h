#pragma once

#include <cstdint>

#include "framework/kernels/gemm.h"
#include "framework/kernels/gemm_tiles.h"
#include "framework/kernels/task_grid.h"

namespace tessera::kernels {

// The tasks of a blocked product (gemm_packed.h): what one task packs and in which order it calls the tiles. Internal
// to this component.

inline constexpr std::int64_t round_up(std::int64_t x, std::int64_t unit) { return ceil_div(x, unit) * unit; }

/// Whether words of a factor lie in memory as the tile reads them. Else a factor whose inner index is k is widened.
inline bool in_words(const TileKernels& t, DType type) {
  return type == (t.elements == 2 ? DType::bfloat16 : DType::float32);
}

/// Where a task finds its strips of a: in the rows of a itself, or packed, either by all tasks together or by the task.
/// Extents and strides along k are in words.
struct Strips {
  const float* at;
  std::int64_t across;           ///< from a row of a to the next; packed: from a strip to the next
  std::int64_t packed_rows = 0;  ///< in a strip; 0: not packed
  std::int64_t block = 1;        ///< words of k that lie together; packed strips hold whole blocks of them
  std::int64_t row = 0, k = 0;   ///< of the first word that is packed

  struct Strip {
    const float* at;
    std::int64_t row, step;  ///< a_row and a_step of TileCall
  };
  Strip strip(std::int64_t first, std::int64_t step) const {
    if (packed_rows == 0) return {at + first * across + step, across, 1};
    return {at + (first - row) / packed_rows * across + (step - k) * packed_rows, block, packed_rows};
  }
};

/// Operands that the tasks of one product share. What is null, each task packs for itself, one block of k at a time.
struct Shared {
  const Strips* strips = nullptr;
  const float* panels = nullptr;  ///< of all columns; the block that begins at k lies at k * width
  std::int64_t width = 0;         ///< N rounded up to whole panels
};

/// Rows of c as floats, before they are rounded to the type of c. A view of c itself if that is float.
struct Sums {
  float* at;
  std::int64_t row;  ///< floats from a row to the next
};

/// The division of c into tasks: at least `enough_tasks` if the extents allow it, so that a few threads finish at about
/// the same time. A task with few rows is expensive because b is packed again for each block of rows; a task with
/// few columns reads strips of a more often, which costs less, and least if the strips are packed. So columns are
/// divided first. If that gives few tasks of unequal width (128 columns: 96 and 32), rows are divided instead: packing
/// b for 32 rows takes a fifth of the time of multiplying it with them, so less than one thread would wait (64 x 128 x
/// 512 on two threads of a Zen 4: 137 to 188 GFLOP/s).
TaskGrid grid_of_tiles(const TileKernels& t, const MatrixProduct& p, std::int64_t enough_tasks);

/// Packs `steps` words, from word k on, of rows [first, last) of a; k is its outer index.
void pack_strips(const TileKernels& t, const MatrixProduct& p, std::int64_t first, std::int64_t last, std::int64_t k,
                 std::int64_t steps, std::int64_t apart, float* to);

/// Packs `steps` words, from word k on, of columns [first, last) of b.
void pack_panels(const TileKernels& t, const MatrixProduct& p, std::int64_t first, std::int64_t last, std::int64_t k,
                 std::int64_t steps, std::int64_t apart, float* to);

/// Finishes `count` rows of c from row `row`, columns [col, col + cols): the rounding to 16 bits, and the activation of
/// what was rounded.
void finish(const TileKernels& t, const MatrixProduct& p, std::int64_t row, std::int64_t count, std::int64_t col,
            std::int64_t cols, const Sums& sums);

/// Runs task `task` of the grid. `threads`: how many run the tasks of the grid.
void run_task(const TileKernels& t, const MatrixProduct& p, const TaskGrid& grid, const Shared& shared,
              std::int64_t task, int threads);

/// Runs all tasks of the grid.
void matrix_product(Threads& threads, const TileKernels& t, const MatrixProduct& p, const TaskGrid& grid,
                    const Shared& shared);

}  // namespace tessera::kernels
