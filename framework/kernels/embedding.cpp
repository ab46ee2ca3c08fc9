#include "framework/kernels/embedding.h"

#include <algorithm>

#include "framework/kernels/extents.h"
#include "framework/kernels/scratch.h"
#include "framework/kernels/type_conversion.h"

namespace tessera::kernels {
namespace {

void check_ids(std::int64_t vocabulary, std::span<const std::int32_t> ids) {
  for (std::size_t r = 0; r < ids.size(); ++r) {
    if (ids[r] < 0 || ids[r] >= vocabulary) {
      throw ShapeError(text("embedding: row ", r, " asks for id ", ids[r], "; the table has ", vocabulary,
                            " rows. Was the text made into tokens with another vocabulary than the model has?"));
    }
  }
}

/// Checks shapes and ids; returns the vocabulary size.
std::int64_t check(std::int64_t width, std::span<const std::int32_t> ids, std::size_t table, std::size_t y) {
  must(width > 0, "an embedding has a width");
  if (table % static_cast<std::size_t>(width) != 0) {
    throw ShapeError(text("embedding: the table has ", table, " values, no whole number of rows of ", width));
  }
  expect_values("embedding", "y", y, static_cast<std::int64_t>(ids.size()) * width);
  const auto vocabulary = static_cast<std::int64_t>(table) / width;
  check_ids(vocabulary, ids);
  return vocabulary;
}

/// to[i] += from[i]. __restrict lets the compiler vectorize: the two never overlap.
void add_to(const float* __restrict from, std::size_t n, float* __restrict to) {
  for (std::size_t i = 0; i < n; ++i) to[i] += from[i];
}

}  // namespace

void embedding_forward(Threads& threads, std::span<const std::int32_t> ids, const EmbeddingTable& table,
                       std::span<float> y, bool add) {
  const auto n = static_cast<std::size_t>(table.width);
  check(table.width, ids, table.rows.size(), y.size());
  const bool direct = !add || (table.rows.stored == nullptr && table.rows.type() == DType::float32);
  threads.parallel_for(ids.size(), 16, [&](std::size_t first, std::size_t last) {
    const Scratch memory(direct ? 0 : n);
    const auto row = memory.floats();
    for (auto r = first; r < last; ++r) {
      const auto to = y.subspan(r * n, n);
      if (!add) {
        read_row(table.rows, ids[r], table.width, to);
      } else if (direct) {
        const auto from = table.rows.elements.part(static_cast<std::size_t>(ids[r]) * n, n);
        add_to(reinterpret_cast<const float*>(from.at), n, to.data());
      } else {
        read_row(table.rows, ids[r], table.width, row);
        add_to(row.data(), n, to.data());
      }
    }
  });
}

void embedding_backward(Threads& threads, std::int64_t width, std::span<const std::int32_t> ids,
                        std::span<const float> dy, std::span<float> dtable, std::int64_t padding) {
  check(width, ids, dtable.size(), dy.size());
  const auto n = static_cast<std::size_t>(width);
  threads.parallel_for(n, 64, [&](std::size_t first, std::size_t last) {  // by columns: two rows may have the same id
    for (std::size_t r = 0; r < ids.size(); ++r) {
      if (ids[r] == padding) continue;
      add_to(dy.data() + r * n + first, last - first, dtable.data() + static_cast<std::size_t>(ids[r]) * n + first);
    }
  });
}

void embedding_part_forward(Threads& threads, std::int64_t vocabulary, std::int64_t first_row,
                            std::span<const std::int32_t> ids, const EmbeddingTable& table, std::span<float> y) {
  const auto width = table.width, rows = static_cast<std::int64_t>(table.rows.size()) / width;
  expect_values("embedding", "y", y.size(), static_cast<std::int64_t>(ids.size()) * width);
  check_ids(vocabulary, ids);
  const auto n = static_cast<std::size_t>(width);
  threads.parallel_for(ids.size(), 16, [&](std::size_t first, std::size_t last) {
    for (auto r = first; r < last; ++r) {
      const auto row = ids[r] - first_row;
      const auto to = y.subspan(r * n, n);
      if (row >= 0 && row < rows)
        read_row(table.rows, row, width, to);
      else
        std::fill(to.begin(), to.end(), 0.0F);
    }
  });
}

void embedding_part_backward(Threads& threads, std::int64_t width, std::int64_t first_row,
                             std::span<const std::int32_t> ids, std::span<const float> dy, std::span<float> dtable,
                             std::int64_t padding) {
  expect_values("embedding", "dy", dy.size(), static_cast<std::int64_t>(ids.size()) * width);
  const auto n = static_cast<std::size_t>(width);
  const auto rows = static_cast<std::int64_t>(dtable.size() / n);
  threads.parallel_for(n, 64, [&](std::size_t first, std::size_t last) {
    for (std::size_t r = 0; r < ids.size(); ++r) {
      const auto row = ids[r] - first_row;
      if (row < 0 || row >= rows || ids[r] == padding) continue;
      add_to(dy.data() + r * n + first, last - first, dtable.data() + static_cast<std::size_t>(row) * n + first);
    }
  });
}

void embedding_columns_forward(Threads& threads, std::int64_t vocabulary, std::int64_t first,
                               std::span<const std::int32_t> ids, const Tensor& table, std::span<float> y) {
  const auto rank = table.shape()[0], columns = table.shape()[1];
  expect_values("embedding", "y", y.size(), static_cast<std::int64_t>(ids.size()) * rank);
  check_ids(vocabulary, ids);
  const Elements all = table;
  threads.parallel_for(ids.size(), 64, [&](std::size_t begin, std::size_t end) {
    for (auto r = begin; r < end; ++r) {
      const auto column = ids[r] - first;
      for (std::int64_t k = 0; k < rank; ++k) {
        auto& to = y[r * static_cast<std::size_t>(rank) + static_cast<std::size_t>(k)];
        to = 0;
        if (column >= 0 && column < columns)
          widen_range(all.part(static_cast<std::size_t>(k * columns + column), 1), {&to, 1});
      }
    }
  });
}

void embedding_columns_backward(Threads& threads, std::int64_t first, std::span<const std::int32_t> ids,
                                std::span<const float> dy, std::int64_t rank, std::span<float> dtable,
                                std::int64_t padding) {
  expect_values("embedding", "dy", dy.size(), static_cast<std::int64_t>(ids.size()) * rank);
  const auto columns = static_cast<std::int64_t>(dtable.size()) / rank;
  threads.parallel_for(static_cast<std::size_t>(rank), 1, [&](std::size_t k, std::size_t) {
    const auto row = dtable.subspan(k * static_cast<std::size_t>(columns), static_cast<std::size_t>(columns));
    for (std::size_t r = 0; r < ids.size(); ++r) {
      const auto column = ids[r] - first;
      if (column >= 0 && column < columns && ids[r] != padding)
        row[static_cast<std::size_t>(column)] += dy[r * static_cast<std::size_t>(rank) + k];
    }
  });
}

}  // namespace tessera::kernels
