#pragma once

#include <cstdint>
#include <span>

#include "framework/kernels/threads.h"
#include "framework/kernels/weight.h"
#include "framework/tensor/tensor.h"

namespace tessera::kernels {

/// The rows of an embedding, one for each id: a dense tensor or a stored matrix.
struct EmbeddingTable {
  Weight rows;
  std::int64_t width;
  EmbeddingTable(const Tensor& dense)  // NOLINT(google-explicit-constructor): kernels are called with tensors
      : rows(dense), width(dense.shape().width()) {}
  EmbeddingTable(const Weight& weight, std::int64_t row_width) : rows(weight), width(row_width) {}
};

/// y[r] = table[ids[r]], or y[r] += table[ids[r]] if `add` (learned position embeddings are added to the token
/// embeddings).
///
///   ids     [rows]                each in [0, vocabulary)
///   table   [vocabulary, width]   float32, bfloat16 or float16
///   y       [rows, width]
///
/// Throws ShapeError for an id out of range (naming row and id) and for sizes that do not fit.
void embedding_forward(Threads& threads, std::span<const std::int32_t> ids, const EmbeddingTable& table,
                       std::span<float> y, bool add);

/// Gradient of the table: dtable[ids[r]] += dy[r].
///
///   dy       [rows, width]
///   dtable   [vocabulary, width]
///
/// Several rows may have the same id. Threads therefore divide the columns, and each adds the rows in ascending order:
/// the result does not depend on the number of threads. Rows with the id `padding` add nothing. Throws as
/// embedding_forward.
void embedding_backward(Threads& threads, std::int64_t width, std::span<const std::int32_t> ids,
                        std::span<const float> dy, std::span<float> dtable, std::int64_t padding = -1);

/// As embedding_forward, for a table that is sharded over ranks by row (vocabulary parallelism): `table` [rows, width]
/// has the rows [first_row, first_row + rows) of the vocabulary. An id of another rank's row gives zeros, and the
/// caller all-reduces y. Throws ShapeError for an id outside [0, vocabulary) and if y has another size.
void embedding_part_forward(Threads& threads, std::int64_t vocabulary, std::int64_t first_row,
                            std::span<const std::int32_t> ids, const EmbeddingTable& table, std::span<float> y);
/// As embedding_backward, for this rank's rows of the table: dtable [rows, width] has the rows from `first_row` on; ids
/// of other ranks' rows and the id `padding` are skipped.
void embedding_part_backward(Threads& threads, std::int64_t width, std::int64_t first_row,
                             std::span<const std::int32_t> ids, std::span<const float> dy, std::span<float> dtable,
                             std::int64_t padding = -1);

/// y[r] = column ids[r] of `table`, 0 for an id of another rank's column, as the embedding of a low-rank adapter needs
/// them.
///
///   table   [rank, columns], float32, bfloat16 or float16: the columns [first, first + columns) of the vocabulary
///   y       [rows, rank]
///
/// Throws ShapeError for an id outside [0, vocabulary) and if y has another size.
void embedding_columns_forward(Threads& threads, std::int64_t vocabulary, std::int64_t first,
                               std::span<const std::int32_t> ids, const Tensor& table, std::span<float> y);
/// Its gradient: dtable[k, ids[r] - first] += dy[r, k], in ascending order of r; ids of other ranks' columns and the id
/// `padding` are skipped.
void embedding_columns_backward(Threads& threads, std::int64_t first, std::span<const std::int32_t> ids,
                                std::span<const float> dy, std::int64_t rank, std::span<float> dtable,
                                std::int64_t padding);

}  // namespace tessera::kernels
