#include "framework/kernels/activation.h"

#include <cmath>

#include "framework/kernels/extents.h"

namespace tessera {
namespace {

constexpr std::size_t tile = 4096;
constexpr double root_2_over_pi = 0.79788456080286535588, root_half = 0.70710678118654752440;

double gelu(Activation act, double x) {
  if (act == Activation::gelu_erf) return 0.5 * x * (1 + std::erf(x * root_half));
  return 0.5 * x * (1 + std::tanh(root_2_over_pi * (x + 0.044715 * x * x * x)));
}

double gelu_slope(Activation act, double x) {
  if (act == Activation::gelu_erf) {
    return 0.5 * (1 + std::erf(x * root_half)) + x * 0.5 * root_2_over_pi * std::exp(-0.5 * x * x);
  }
  const double t = std::tanh(root_2_over_pi * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * root_2_over_pi * (1 + 3 * 0.044715 * x * x);
}

}  // namespace

void gelu_forward(Threads& threads, Activation act, std::span<const float> x, std::span<float> y) {
  expect_values("gelu", "y", y.size(), static_cast<std::int64_t>(x.size()));
  must(act != Activation::none, "gelu is asked for one of its two forms");
  threads.parallel_for(x.size(), tile, [&](std::size_t first, std::size_t last) {
    for (auto i = first; i < last; ++i) y[i] = static_cast<float>(gelu(act, x[i]));
  });
}

void gelu_backward(Threads& threads, Activation act, std::span<const float> dy, std::span<const float> x,
                   std::span<float> dx, bool add) {
  expect_values("gelu", "dy", dy.size(), static_cast<std::int64_t>(x.size()));
  expect_values("gelu", "dx", dx.size(), static_cast<std::int64_t>(x.size()));
  must(act != Activation::none, "gelu is asked for one of its two forms");
  threads.parallel_for(x.size(), tile, [&](std::size_t first, std::size_t last) {
    for (auto i = first; i < last; ++i) {
      dx[i] = (add ? dx[i] : 0.0F) + static_cast<float>(dy[i] * gelu_slope(act, x[i]));
    }
  });
}

void swiglu_forward(Threads& threads, std::int64_t rows, std::int64_t width, std::span<const float> x,
                    std::span<float> y) {
  expect_values("swiglu", "x", x.size(), rows * 2 * width);
  expect_values("swiglu", "y", y.size(), rows * width);
  const auto n = static_cast<std::size_t>(width);
  threads.parallel_for(static_cast<std::size_t>(rows), 4, [&](std::size_t first, std::size_t last) {
    for (auto r = first; r < last; ++r) {
      for (std::size_t i = 0; i < n; ++i) {
        const double gate = x[2 * n * r + i], up = x[2 * n * r + n + i];
        y[n * r + i] = static_cast<float>(gate / (1 + std::exp(-gate)) * up);
      }
    }
  });
}

void swiglu_backward(Threads& threads, std::int64_t rows, std::int64_t width, std::span<const float> dy,
                     std::span<const float> x, std::span<float> dx, bool add) {
  expect_values("swiglu", "x", x.size(), rows * 2 * width);
  expect_values("swiglu", "dx", dx.size(), rows * 2 * width);
  expect_values("swiglu", "dy", dy.size(), rows * width);
  const auto n = static_cast<std::size_t>(width);
  threads.parallel_for(static_cast<std::size_t>(rows), 4, [&](std::size_t first, std::size_t last) {
    for (auto r = first; r < last; ++r) {
      for (std::size_t i = 0; i < n; ++i) {
        const auto at = 2 * n * r + i;
        const double gate = x[at], up = x[at + n], s = 1 / (1 + std::exp(-gate)), d = dy[n * r + i];
        const double old_gate = add ? dx[at] : 0, old_up = add ? dx[at + n] : 0;
        dx[at] = static_cast<float>(old_gate + d * up * s * (1 + gate * (1 - s)));
        dx[at + n] = static_cast<float>(old_up + d * gate * s);
      }
    }
  });
}

}  // namespace tessera
