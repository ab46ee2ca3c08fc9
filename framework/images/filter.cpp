#include "framework/images/filter.h"

#include <algorithm>
#include <cmath>

namespace tessera::images {
namespace {

/// Keys' cubic convolution with a = -1/2, in the order of operations of the backend.
double cubic(double x, Backend backend) {
  constexpr double a = -0.5;
  x = std::abs(x);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x >= 2) return 0;
  return backend == Backend::pil ? (((x - 5) * x + 8) * x - 4) * a : ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
}

/// As C converts: towards zero, also where a half was added to round.
std::int64_t truncated(double x) { return static_cast<std::int64_t>(x); }

/// Fraction bits of torchvision's weights: as many as the largest weight leaves of 16 bits.
int torchvision_shift(double largest) {
  int shift = 0;
  while (shift < 22 && truncated(0.5 + largest * (1 << (shift + 1))) < (1 << 15)) ++shift;
  return shift;
}

constexpr int pil_shift = 32 - 8 - 2;

/// The weights before they are rounded.
struct RealFilter {
  Filter filter;
  std::vector<double> weights;
  double largest = 0;

  void set(std::int64_t i, std::int64_t from, std::int64_t to, Backend backend);
};

void RealFilter::set(std::int64_t i, std::int64_t from, std::int64_t to, Backend backend) {
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  const double widening = std::max(scale, 1.0), support = 2 * widening, inverse = 1.0 / widening;
  const double centre = scale * (static_cast<double>(i) + 0.5);
  const auto first = std::max<std::int64_t>(truncated(centre - support + 0.5), 0);
  const auto end = std::min<std::int64_t>(truncated(centre + support + 0.5), from);
  const int count = std::clamp<int>(static_cast<int>(end - first), 0, filter.taps);
  auto* mine = &weights[static_cast<std::size_t>(i * filter.taps)];
  double sum = 0;
  for (int k = 0; k < count; ++k) {
    mine[k] = cubic((static_cast<double>(k + first) - centre + 0.5) * inverse, backend);
    sum += mine[k];
  }
  for (int k = 0; k < count && sum != 0; ++k) {
    mine[k] /= sum;
    largest = std::max(largest, mine[k]);
  }
  filter.first[static_cast<std::size_t>(i)] = first;
  filter.count[static_cast<std::size_t>(i)] = count;
}

/// Half away from zero.
std::int32_t rounded(double value) {
  return static_cast<std::int32_t>(truncated(value < 0 ? value - 0.5 : value + 0.5));
}

}  // namespace

Filter bicubic_filter(std::int64_t from, std::int64_t to, Backend backend) {
  RealFilter real;
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  real.filter.taps = static_cast<int>(std::ceil(2 * std::max(scale, 1.0))) * 2 + 1;
  real.filter.first.resize(static_cast<std::size_t>(to));
  real.filter.count.resize(static_cast<std::size_t>(to));
  real.weights.resize(static_cast<std::size_t>(to * real.filter.taps));
  for (std::int64_t i = 0; i < to; ++i) real.set(i, from, to, backend);
  real.filter.shift = backend == Backend::pil ? pil_shift : torchvision_shift(real.largest);
  real.filter.weights.reserve(real.weights.size());
  for (const double weight : real.weights) real.filter.weights.push_back(rounded(weight * (1 << real.filter.shift)));
  return std::move(real.filter);
}

}  // namespace tessera::images
