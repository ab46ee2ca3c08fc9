#include "framework/kernels/magnitude.h"

#include <algorithm>

#include "framework/kernels/extents.h"
#include "framework/kernels/float_window.h"
#include "framework/kernels/type_conversion.h"

namespace tessera::kernels {
namespace {

constexpr std::size_t square_lanes = 8;

/// sums[i % square_lanes] += x[i]^2.
void add_squares(std::span<const float> x, double (&sums)[square_lanes]) {
  std::size_t i = 0;
  for (; i + square_lanes <= x.size(); i += square_lanes)
    for (std::size_t k = 0; k < square_lanes; ++k) sums[k] += static_cast<double>(x[i + k]) * x[i + k];
  for (; i < x.size(); ++i) sums[i % square_lanes] += static_cast<double>(x[i]) * x[i];
}

/// Columns [col, col + to.size()) of a row of `w`.
void read_columns(const Weight& w, std::int64_t width, std::int64_t row, std::int64_t col, std::span<float> to) {
  if (w.stored) return read_box(*w.stored, {row, 1, col, static_cast<std::int64_t>(to.size())}, w.type(), to);
  widen_range(w.elements.part(static_cast<std::size_t>(row * width + col), to.size()), to);
}

double square_of_row(const Weight& w, std::int64_t width, std::int64_t row) {
  double sums[square_lanes] = {}, all = 0;
  float floats[float_window];
  for (std::int64_t col = 0; col < width; col += static_cast<std::int64_t>(float_window)) {
    const auto count = std::min(float_window, static_cast<std::size_t>(width - col));
    read_columns(w, width, row, col, {floats, count});
    add_squares({floats, count}, sums);
  }
  for (const auto sum : sums) all += sum;
  return all;
}

/// `row` counts in W, `b` is its row of B.
double square_of_low_rank(const LowRankSquares& of, std::size_t row, std::span<const float> b) {
  const auto out = static_cast<std::size_t>(of.out);
  double cross = 0, square = 0;
  for (std::size_t k = 0; k < b.size(); ++k) {
    cross += static_cast<double>(of.aw[k * out + row]) * b[k];
    double sum = 0;
    for (std::size_t j = 0; j < b.size(); ++j) sum += static_cast<double>(of.aa[k * b.size() + j]) * b[j];
    square += sum * b[k];
  }
  return of.scale * (2 * cross + of.scale * square);
}

/// Calls each(row in W, row of the adapter) for all rows of an adapter.
template <class Each>
void for_rows_of(Threads& threads, std::span<const RowBlock> rows, std::size_t tile, const Each& each) {
  for (const auto& block : rows)
    threads.parallel_for(static_cast<std::size_t>(block.count), tile, [&](std::size_t first, std::size_t last) {
      for (auto i = first; i < last; ++i)
        each(static_cast<std::size_t>(block.in_layer) + i, static_cast<std::size_t>(block.in_factor) + i);
    });
}

}  // namespace

void row_squares(Threads& threads, const Weight& w, std::int64_t width, std::span<double> squares) {
  expect_values("row_squares", "w", w.size(), static_cast<std::int64_t>(squares.size()) * width);
  threads.parallel_for(squares.size(), 16, [&](std::size_t first, std::size_t last) {
    for (auto row = first; row < last; ++row) squares[row] = square_of_row(w, width, static_cast<std::int64_t>(row));
  });
}

namespace {
constexpr std::int64_t rows_of_part = 4096;
}  // namespace

std::int64_t column_parts(std::int64_t rows) { return (rows + rows_of_part - 1) / rows_of_part; }

void column_squares(Threads& threads, const Weight& w, std::int64_t rows, std::span<double> partial,
                    std::span<double> squares) {
  const auto width = squares.size(), parts = static_cast<std::size_t>(column_parts(rows));
  expect_values("column_squares", "w", w.size(), rows * static_cast<std::int64_t>(width));
  expect_values("column_squares", "partial", partial.size(), static_cast<std::int64_t>(parts * width));
  threads.parallel_for(parts, 1, [&](std::size_t first, std::size_t last) {
    std::vector<float> row(width);
    for (auto part = first; part < last; ++part) {
      const auto sums = partial.subspan(part * width, width);
      std::fill(sums.begin(), sums.end(), 0.0);
      const auto begin = static_cast<std::int64_t>(part) * rows_of_part;
      for (auto at = begin; at < std::min(begin + rows_of_part, rows); ++at) {
        read_row(w, at, static_cast<std::int64_t>(width), row);
        for (std::size_t c = 0; c < width; ++c) sums[c] += static_cast<double>(row[c]) * static_cast<double>(row[c]);
      }
    }
  });
  threads.parallel_for(width, 1024, [&](std::size_t first, std::size_t last) {
    for (auto c = first; c < last; ++c) {
      squares[c] = 0;
      for (std::size_t part = 0; part < parts; ++part) squares[c] += partial[part * width + c];
    }
  });
}

void add_low_rank_squares(Threads& threads, const LowRankSquares& of, std::span<double> squares) {
  expect_values("add_low_rank_squares", "aw", of.aw.size(), of.rank * of.out);
  expect_values("add_low_rank_squares", "aa", of.aa.size(), of.rank * of.rank);
  const auto rank = static_cast<std::size_t>(of.rank);
  for_rows_of(threads, of.rows, 64, [&](std::size_t row, std::size_t own) {
    squares[row] += square_of_low_rank(of, row, of.b.subspan(own * rank, rank));
  });
}

void magnitude_factors(Threads& threads, std::span<const RowBlock> rows, std::span<const float> m,
                       std::span<const float> norms, std::span<float> factors) {
  for_rows_of(threads, rows, 4096,
              [&](std::size_t row, std::size_t own) { factors[row] = norms[row] > 0 ? m[own] / norms[row] : 0.0F; });
}

void scale_columns(Threads& threads, const Elements& v, std::span<const float> factors, std::span<const float> bias,
                   const MutableElements& y) {
  const auto width = factors.size(), rows = v.size() / std::max<std::size_t>(width, 1);
  expect_values("scale_columns", "v", v.size(), static_cast<std::int64_t>(rows * width));
  expect_values("scale_columns", "y", y.size(), static_cast<std::int64_t>(rows * width));
  if (!bias.empty()) expect_values("scale_columns", "bias", bias.size(), static_cast<std::int64_t>(width));
  threads.parallel_for(rows, 16, [&](std::size_t first, std::size_t last) {
    FloatReader from(v);
    FloatWriter to(y);
    for (auto row = first; row < last; ++row)
      in_windows(0, width, false, [&](std::size_t at, std::size_t count) {
        const auto* in = from.at(row * width + at, count);
        auto* out = to.at(row * width + at, count, false);
        if (bias.empty())
          for (std::size_t i = 0; i < count; ++i) out[i] = in[i] * factors[at + i];
        else
          for (std::size_t i = 0; i < count; ++i) out[i] = in[i] * factors[at + i] + bias[at + i];
        to.store();
      });
  });
}

void subtract(Threads& threads, const Elements& a, const Elements& b, const MutableElements& y) {
  expect_values("subtract", "b", b.size(), static_cast<std::int64_t>(a.size()));
  expect_values("subtract", "y", y.size(), static_cast<std::int64_t>(a.size()));
  threads.parallel_for(a.size(), 16 * float_window, [&](std::size_t first, std::size_t last) {
    FloatReader left(a), right(b);
    FloatWriter to(y);
    in_windows(first, last, false, [&](std::size_t at, std::size_t count) {
      const auto *x = left.at(at, count), *less = right.at(at, count);
      auto* out = to.at(at, count, false);
      for (std::size_t i = 0; i < count; ++i) out[i] = x[i] - less[i];
      to.store();
    });
  });
}

void dot_columns(Threads& threads, const Elements& x, const Elements& y, std::span<float> sums) {
  constexpr std::size_t tile = 128, together = 64;  // columns of a tile; rows summed in float
  const auto width = sums.size(), rows = x.size() / std::max<std::size_t>(width, 1);
  expect_values("dot_columns", "x", x.size(), static_cast<std::int64_t>(rows * width));
  expect_values("dot_columns", "y", y.size(), static_cast<std::int64_t>(rows * width));
  threads.parallel_for(width, tile, [&](std::size_t first, std::size_t last) {
    const auto count = last - first;
    double total[tile] = {};
    FloatReader left(x), right(y);
    for (std::size_t begin = 0; begin < rows; begin += together) {
      float sum[tile] = {};
      for (auto row = begin; row < std::min(begin + together, rows); ++row) {
        const float* __restrict a = left.at(row * width + first, count);
        const float* __restrict b = right.at(row * width + first, count);
        for (std::size_t c = 0; c < count; ++c) sum[c] += a[c] * b[c];
      }
      for (std::size_t c = 0; c < count; ++c) total[c] += sum[c];
    }
    for (std::size_t c = 0; c < count; ++c) sums[first + c] = static_cast<float>(total[c]);
  });
}

void magnitude_backward(Threads& threads, std::span<const RowBlock> rows, std::span<const float> sums,
                        std::span<const float> norms, std::span<float> dm) {
  for_rows_of(threads, rows, 4096, [&](std::size_t row, std::size_t own) {
    if (norms[row] > 0) dm[own] += sums[row] / norms[row];
  });
}

}  // namespace tessera::kernels
