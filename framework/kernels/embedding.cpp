#include "framework/kernels/embedding.h"

#include <algorithm>

#include "framework/kernels/extents.h"

namespace tessera {
namespace {

void check_ids(std::int64_t vocabulary, std::span<const std::int32_t> ids) {
  for (std::size_t r = 0; r < ids.size(); ++r) {
    if (ids[r] < 0 || ids[r] >= vocabulary) {
      throw ShapeError(text("embedding: row ", r, " asks for id ", ids[r], "; the table has ", vocabulary,
                            " rows. Was the text made into tokens with another vocabulary than the model has?"));
    }
  }
}

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

void add_to(const float* __restrict from, std::size_t n, float* __restrict to) {
  for (std::size_t i = 0; i < n; ++i) to[i] += from[i];
}

}  // namespace

void embedding_forward(Threads& threads, std::int64_t width, std::span<const std::int32_t> ids,
                       std::span<const float> table, std::span<float> y, bool add) {
  check(width, ids, table.size(), y.size());
  const auto n = static_cast<std::size_t>(width);
  threads.parallel_for(ids.size(), 16, [&](std::size_t first, std::size_t last) {
    for (auto r = first; r < last; ++r) {
      const float* from = table.data() + static_cast<std::size_t>(ids[r]) * n;
      if (add)
        add_to(from, n, y.data() + r * n);
      else
        std::copy_n(from, n, y.data() + r * n);
    }
  });
}

void embedding_backward(Threads& threads, std::int64_t width, std::span<const std::int32_t> ids,
                        std::span<const float> dy, std::span<float> dtable) {
  check(width, ids, dtable.size(), dy.size());
  const auto n = static_cast<std::size_t>(width);
  threads.parallel_for(n, 64, [&](std::size_t first, std::size_t last) {  // columns: two rows may share an id
    for (std::size_t r = 0; r < ids.size(); ++r) {
      add_to(dy.data() + r * n + first, last - first, dtable.data() + static_cast<std::size_t>(ids[r]) * n + first);
    }
  });
}

}  // namespace tessera
