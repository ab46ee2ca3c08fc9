#pragma once

#include <cstdint>

#include "framework/kernels/elements.h"
#include "framework/kernels/threads.h"

namespace tessera::kernels {

/// Blocks of columns that are copied between the rows of two matrices: `blocks` blocks of `width` columns, which begin
/// at first, first + step, first + 2 step, ... in each row. Step 0 in the source repeats one block.
struct ColumnBlocks {
  std::int64_t blocks = 1, width = 0;
  std::int64_t from_first = 0, from_step = 0;
  std::int64_t to_first = 0, to_step = 0;
};

/// Copies the blocks; the other columns of `to` stay unchanged.
///
///   from   [rows, from_width]
///   to     [rows, to_width]    the same type
///
/// Throws ShapeError if a size differs, a block leaves its row, or the types differ.
void copy_columns(Threads& threads, std::int64_t rows, const Elements& from, std::int64_t from_width,
                  const MutableElements& to, std::int64_t to_width, const ColumnBlocks& blocks);

/// Adds the blocks to those of `to`, in fp32, each rounded once. With step 0 in `to` the blocks are summed, in their
/// order. The types may differ.
void add_columns(Threads& threads, std::int64_t rows, const Elements& from, std::int64_t from_width,
                 const MutableElements& to, std::int64_t to_width, const ColumnBlocks& blocks);

}  // namespace tessera::kernels
