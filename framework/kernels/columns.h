#pragma once

#include <cstdint>

#include "framework/kernels/elements.h"
#include "framework/kernels/threads.h"

namespace tessera::kernels {

/// Blocks of columns that are copied between the rows of two matrices: `blocks` blocks of `width` columns each. Block i
/// begins at column from_first + i * from_step of the source and at column to_first + i * to_step of the destination.
/// from_step 0 reads the same block of the source for every i.
struct ColumnBlocks {
  std::int64_t blocks = 1, width = 0;
  std::int64_t from_first = 0, from_step = 0;
  std::int64_t to_first = 0, to_step = 0;
};

/// Copies the blocks from `from` to `to`; the other columns of `to` stay unchanged.
///
///   from   [rows, from_width]
///   to     [rows, to_width]    the type of `from`
///
/// Throws ShapeError if a size differs, a block leaves its row, or the types differ.
void copy_columns(Threads& threads, std::int64_t rows, const Elements& from, std::int64_t from_width,
                  const MutableElements& to, std::int64_t to_width, const ColumnBlocks& blocks);

/// Adds the blocks of `from` to the blocks of `to`: shapes as of copy_columns, types may differ. Sums are computed in
/// fp32 and rounded once. to_step 0 adds all blocks to the same block of `to`, in ascending order. Results do not
/// depend on the number of threads. Throws ShapeError if a size differs or a block leaves its row.
void add_columns(Threads& threads, std::int64_t rows, const Elements& from, std::int64_t from_width,
                 const MutableElements& to, std::int64_t to_width, const ColumnBlocks& blocks);

}  // namespace tessera::kernels
