#pragma once

#include <cstdint>
#include <span>

#include "framework/kernels/threads.h"
#include "framework/tensor/tensor.h"

namespace tessera {

/// y[r] = table[ids[r]], or y[r] += when `add` (learned positions are added to tokens).
///
///   ids     [rows]           each in [0, vocabulary); ShapeError names the row and the id otherwise
///   table   [vocabulary, width] of float32, bfloat16 or float16
///   y       [rows, width]
void embedding_forward(Threads& threads, std::span<const std::int32_t> ids, const Tensor& table, std::span<float> y,
                       bool add);

/// dtable[ids[r]] += dy[r], rows in order for every column, whatever the number of threads.
void embedding_backward(Threads& threads, std::int64_t width, std::span<const std::int32_t> ids,
                        std::span<const float> dy, std::span<float> dtable);

/// The same for a table of which only the rows [first_row, first_row + rows) are here: an id of another row gives
/// zeros, and its gradient goes nowhere. Ids below 0 or from `vocabulary` on are ShapeErrors.
void embedding_part_forward(Threads& threads, std::int64_t vocabulary, std::int64_t first_row,
                            std::span<const std::int32_t> ids, const Tensor& table, std::span<float> y);
void embedding_part_backward(Threads& threads, std::int64_t width, std::int64_t first_row,
                             std::span<const std::int32_t> ids, std::span<const float> dy, std::span<float> dtable);

}  // namespace tessera
