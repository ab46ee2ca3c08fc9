#include "framework/kernels/part_norm.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "framework/kernels/extents.h"

namespace tessera::kernels {
namespace {

constexpr std::size_t rows_of_a_task = 16, columns_of_a_task = 64;

/// Sum of term(0), ..., term(count - 1): eight sums side by side, which a compiler can keep in vectors.
template <class Term>
double sum_of(std::size_t count, const Term& term) {
  std::array<double, 8> lanes = {};
  std::size_t i = 0;
  for (; i + lanes.size() <= count; i += lanes.size())
    for (std::size_t lane = 0; lane < lanes.size(); ++lane) lanes[lane] += term(i + lane);
  for (; i < count; ++i) lanes[i % lanes.size()] += term(i);
  double sum = 0;
  for (const auto lane : lanes) sum += lane;
  return sum;
}

void check_part(const PartNorm& of, std::size_t rows, std::size_t other) {
  const auto elements = static_cast<std::int64_t>(rows * of.gain.size());
  expect_values("norm of parts of rows", "x", of.x.size(), elements);
  expect_values("norm of parts of rows", "y", other, elements);
}

}  // namespace

void part_squares(Threads& threads, std::span<const float> x, std::span<double> sums) {
  const auto width = sums.empty() ? 0 : x.size() / sums.size();
  expect_values("squares of parts of rows", "x", x.size(), static_cast<std::int64_t>(width * sums.size()));
  threads.parallel_for(sums.size(), rows_of_a_task, [&](std::size_t first, std::size_t last) {
    for (auto r = first; r < last; ++r) {
      const float* row = x.data() + r * width;
      sums[r] = sum_of(width, [&](std::size_t i) { return static_cast<double>(row[i]) * static_cast<double>(row[i]); });
    }
  });
}

void inverse_rms(Threads& threads, std::span<const double> squares, std::int64_t width, double eps,
                 std::span<float> inverse) {
  expect_values("root mean square", "inverse", inverse.size(), static_cast<std::int64_t>(squares.size()));
  threads.parallel_for(squares.size(), 4096, [&](std::size_t first, std::size_t last) {
    for (auto r = first; r < last; ++r)
      inverse[r] = static_cast<float>(1 / std::sqrt(squares[r] / static_cast<double>(width) + eps));
  });
}

void part_rmsnorm_forward(Threads& threads, const PartNorm& of, std::span<float> y) {
  const auto rows = of.inverse.size(), width = of.gain.size();
  check_part(of, rows, y.size());
  threads.parallel_for(rows, rows_of_a_task, [&](std::size_t first, std::size_t last) {
    for (auto r = first; r < last; ++r)
      for (std::size_t i = 0; i < width; ++i)
        y[r * width + i] = of.x[r * width + i] * of.inverse[r] * (of.gain[i] + of.gain_offset);
  });
}

void part_products(Threads& threads, const PartNorm& of, std::span<const float> dy, std::span<double> sums) {
  const auto width = of.gain.size();
  check_part(of, sums.size(), dy.size());
  threads.parallel_for(sums.size(), rows_of_a_task, [&](std::size_t first, std::size_t last) {
    for (auto r = first; r < last; ++r) {
      const float *x = of.x.data() + r * width, *d = dy.data() + r * width;
      sums[r] = sum_of(width, [&](std::size_t i) {
        return static_cast<double>(d[i] * (of.gain[i] + of.gain_offset)) * static_cast<double>(x[i]);
      });
    }
  });
}

void part_rmsnorm_backward(Threads& threads, const PartNorm& of, std::span<const float> dy,
                           std::span<const double> products, std::int64_t whole_width, std::span<float> dx,
                           std::span<float> dgain) {
  const auto rows = of.inverse.size(), width = of.gain.size();
  check_part(of, rows, dy.size());
  check_part(of, rows, dx.size());
  // Before dx, which may be dy.
  threads.parallel_for(dgain.size(), columns_of_a_task, [&](std::size_t first, std::size_t last) {
    std::array<double, columns_of_a_task> sums = {};
    for (std::size_t r = 0; r < rows; ++r)
      for (auto i = first; i < last; ++i)
        sums[i - first] += static_cast<double>(dy[r * width + i]) * static_cast<double>(of.x[r * width + i]) *
                           static_cast<double>(of.inverse[r]);
    for (auto i = first; i < last; ++i) dgain[i] += static_cast<float>(sums[i - first]);
  });
  threads.parallel_for(rows, rows_of_a_task, [&](std::size_t first, std::size_t last) {
    for (auto r = first; r < last; ++r) {
      const auto inverse = static_cast<double>(of.inverse[r]);
      const auto mean = products.empty() ? 0.0 : products[r] / static_cast<double>(whole_width);
      const auto slope = static_cast<float>(mean * inverse * inverse);
      for (std::size_t i = 0; i < width; ++i) {
        const auto at = r * width + i;
        dx[at] = of.inverse[r] * (dy[at] * (of.gain[i] + of.gain_offset) - of.x[at] * slope);
      }
    }
  });
}

}  // namespace tessera::kernels
