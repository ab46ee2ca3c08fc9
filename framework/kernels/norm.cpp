#include "framework/kernels/norm.h"

#include <algorithm>
#include <cmath>

#include "framework/kernels/extents.h"
#include "framework/kernels/scratch.h"

namespace tessera {
namespace {

struct Rows {
  std::size_t rows, width;
};

Rows rows_of(const char* who, std::size_t x, std::size_t gain) {
  if (gain == 0 || x % gain != 0) {
    throw ShapeError(text(who, ": x has ", x, " values, no whole number of rows of ", gain));
  }
  return {x / gain, gain};
}

/// Rows that share one partial sum of the gain's gradient: at most 64 runs, whatever the number of threads.
std::size_t rows_of_a_tile(std::size_t rows) { return std::max<std::size_t>(16, (rows + 63) / 64); }

/// The backward pass of both norms. With xhat = (x - mean) * inv and g = dy * (gain + offset):
/// dx = inv * (g - [mean(g)] - xhat * mean(g xhat)).
struct Backward {
  std::span<const float> dy, x, gain, mean, inv;  // mean empty: rmsnorm
  float offset;
  std::span<float> dx;
  bool add;
};

void row_backward(const Backward& b, std::size_t r, std::size_t n, float* dgain, float* dbias) {
  const float* dy = b.dy.data() + r * n;
  const float* x = b.x.data() + r * n;
  float* dx = b.dx.data() + r * n;
  const float mean = b.mean.empty() ? 0.0F : b.mean[r], inv = b.inv[r];
  double sum_g = 0, sum_gx = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const float xhat = (x[i] - mean) * inv, g = dy[i] * (b.gain[i] + b.offset);
    sum_g += g;
    sum_gx += static_cast<double>(g) * xhat;
  }
  const auto mean_g = b.mean.empty() ? 0.0F : static_cast<float>(sum_g / static_cast<double>(n));
  const auto mean_gx = static_cast<float>(sum_gx / static_cast<double>(n));
  for (std::size_t i = 0; i < n; ++i) {
    const float xhat = (x[i] - mean) * inv, d = dy[i], g = d * (b.gain[i] + b.offset);
    dgain[i] += d * xhat;
    if (dbias != nullptr) dbias[i] += d;
    dx[i] = (b.add ? dx[i] : 0.0F) + inv * (g - mean_g - xhat * mean_gx);
  }
}

void norm_backward(Threads& threads, const Backward& b, std::span<float> dgain, std::span<float> dbias) {
  const auto [rows, width] = rows_of("norm", b.x.size(), b.gain.size());
  const std::size_t n = width, tile = rows_of_a_tile(rows), tiles = (rows + tile - 1) / tile;
  const std::size_t run = dbias.empty() ? n : 2 * n;
  struct Partials;
  const auto partials = scratch<Partials>(tiles * run);
  threads.parallel_for(rows, tile, [&](std::size_t first, std::size_t last) {
    float* mine = partials.data() + first / tile * run;
    std::fill_n(mine, run, 0.0F);
    for (auto r = first; r < last; ++r) row_backward(b, r, n, mine, dbias.empty() ? nullptr : mine + n);
  });
  threads.parallel_for(run, 256, [&](std::size_t first, std::size_t last) {
    for (auto i = first; i < last; ++i) {
      double sum = 0;
      for (std::size_t t = 0; t < tiles; ++t) sum += partials[t * run + i];
      (i < n ? dgain[i] : dbias[i - n]) += static_cast<float>(sum);
    }
  });
}

void check_backward(const char* who, const Backward& b, std::size_t dgain) {
  const auto [rows, width] = rows_of(who, b.x.size(), b.gain.size());
  expect_values(who, "dy", b.dy.size(), static_cast<std::int64_t>(b.x.size()));
  expect_values(who, "dx", b.dx.size(), static_cast<std::int64_t>(b.x.size()));
  expect_values(who, "inv", b.inv.size(), static_cast<std::int64_t>(rows));
  expect_values(who, "dgain", dgain, static_cast<std::int64_t>(width));
}

}  // namespace

void layernorm_forward(Threads& threads, std::span<const float> x, std::span<const float> gain,
                       std::span<const float> bias, double eps, float gain_offset, std::span<float> y,
                       std::span<float> mean, std::span<float> inv_std) {
  const auto [rows, width] = rows_of("layernorm", x.size(), gain.size());
  const std::size_t n = width;
  expect_values("layernorm", "y", y.size(), static_cast<std::int64_t>(x.size()));
  expect_values("layernorm", "mean", mean.size(), static_cast<std::int64_t>(rows));
  expect_values("layernorm", "inv_std", inv_std.size(), static_cast<std::int64_t>(rows));
  if (!bias.empty()) expect_values("layernorm", "bias", bias.size(), static_cast<std::int64_t>(n));
  threads.parallel_for(rows, 16, [&](std::size_t first, std::size_t last) {
    for (auto r = first; r < last; ++r) {
      const float* row = x.data() + r * n;
      double sum = 0, squares = 0;
      for (std::size_t i = 0; i < n; ++i) sum += row[i];
      const double centre = sum / static_cast<double>(n);
      for (std::size_t i = 0; i < n; ++i) squares += (row[i] - centre) * (row[i] - centre);
      const double inv = 1 / std::sqrt(squares / static_cast<double>(n) + eps);
      mean[r] = static_cast<float>(centre);
      inv_std[r] = static_cast<float>(inv);
      for (std::size_t i = 0; i < n; ++i) {
        const double xhat = (row[i] - centre) * inv;
        y[r * n + i] = static_cast<float>(xhat * (gain[i] + gain_offset) + (bias.empty() ? 0.0 : bias[i]));
      }
    }
  });
}

void layernorm_backward(Threads& threads, std::span<const float> dy, std::span<const float> x,
                        std::span<const float> gain, float gain_offset, std::span<const float> mean,
                        std::span<const float> inv_std, std::span<float> dx, bool add, std::span<float> dgain,
                        std::span<float> dbias) {
  const Backward b{dy, x, gain, mean, inv_std, gain_offset, dx, add};
  check_backward("layernorm", b, dgain.size());
  expect_values("layernorm", "mean", mean.size(), static_cast<std::int64_t>(inv_std.size()));
  if (!dbias.empty()) expect_values("layernorm", "dbias", dbias.size(), static_cast<std::int64_t>(gain.size()));
  norm_backward(threads, b, dgain, dbias);
}

void rmsnorm_forward(Threads& threads, std::span<const float> x, std::span<const float> gain, double eps,
                     float gain_offset, std::span<float> y, std::span<float> inv_rms) {
  const auto [rows, width] = rows_of("rmsnorm", x.size(), gain.size());
  const std::size_t n = width;
  expect_values("rmsnorm", "y", y.size(), static_cast<std::int64_t>(x.size()));
  expect_values("rmsnorm", "inv_rms", inv_rms.size(), static_cast<std::int64_t>(rows));
  threads.parallel_for(rows, 16, [&](std::size_t first, std::size_t last) {
    for (auto r = first; r < last; ++r) {
      const float* row = x.data() + r * n;
      double squares = 0;
      for (std::size_t i = 0; i < n; ++i) squares += static_cast<double>(row[i]) * row[i];
      const auto inv = static_cast<float>(1 / std::sqrt(squares / static_cast<double>(n) + eps));
      inv_rms[r] = inv;
      for (std::size_t i = 0; i < n; ++i) y[r * n + i] = row[i] * inv * (gain[i] + gain_offset);
    }
  });
}

void rmsnorm_backward(Threads& threads, std::span<const float> dy, std::span<const float> x,
                      std::span<const float> gain, float gain_offset, std::span<const float> inv_rms,
                      std::span<float> dx, bool add, std::span<float> dgain) {
  const Backward b{dy, x, gain, {}, inv_rms, gain_offset, dx, add};
  check_backward("rmsnorm", b, dgain.size());
  norm_backward(threads, b, dgain, {});
}

}  // namespace tessera
