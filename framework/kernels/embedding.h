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

}  // namespace tessera
