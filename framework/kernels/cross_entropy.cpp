// Cross-entropy in Highway. Three passes over a row that stays in the cache: the largest value, the exponentials and
// their sum, and where the gradient is asked for a scaling of the exponentials that the second pass left in place.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "framework/kernels/cross_entropy.cpp"
#include <hwy/foreach_target.h>  // compiles this file once for each target
// after it, as Highway asks
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>

#include "framework/kernels/cross_entropy.h"
#include "framework/kernels/extents.h"
#include "framework/kernels/range-inl.h"
#include "framework/kernels/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using range::D;
using range::V;

float Largest(const float* x, std::size_t size) {
  const D d;
  const V least = hn::Set(d, -3.4e38F);
  V m0 = least, m1 = least, m2 = least, m3 = least;
  std::size_t i = 0;
  for (; i + 4 * range::lanes <= size; i += 4 * range::lanes) {
    m0 = hn::Max(m0, hn::LoadU(d, x + i));
    m1 = hn::Max(m1, hn::LoadU(d, x + i + range::lanes));
    m2 = hn::Max(m2, hn::LoadU(d, x + i + 2 * range::lanes));
    m3 = hn::Max(m3, hn::LoadU(d, x + i + 3 * range::lanes));
  }
  float most = hn::GetLane(hn::MaxOfLanes(d, hn::Max(hn::Max(m0, m1), hn::Max(m2, m3))));
  for (; i < size; ++i) most = std::max(most, x[i]);
  return most;
}

double SumOfExponentials(const float* x, std::size_t size, float most) {
  const V shift = hn::Set(D(), most);
  return range::Sum(size,
                    [&](std::size_t i, auto load) HWY_ATTR { return math::Exp(D(), hn::Sub(load(x + i), shift)); });
}

/// The same sum; x[i] becomes e^(x[i] - most). A block at a time, so that each is summed while it is at hand.
double Exponentiate(float* x, std::size_t size, float most) {
  const V shift = hn::Set(D(), most);
  constexpr std::size_t block = 1024;
  double sum = 0;
  for (std::size_t first = 0; first < size; first += block) {
    const auto count = std::min(block, size - first);
    range::Map(x + first, x + first, count, [&](V v) HWY_ATTR { return math::Exp(D(), hn::Sub(v, shift)); });
    sum += range::Sum(count, [&](std::size_t i, auto load) HWY_ATTR { return load(x + first + i); });
  }
  return sum;
}

void Scale(float* x, std::size_t size, float factor) {
  const V by = hn::Set(D(), factor);
  range::Map(x, x, size, [&](V v) HWY_ATTR { return hn::Mul(v, by); });
}

}  // namespace HWY_NAMESPACE
}  // namespace tessera
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera {
namespace {

HWY_EXPORT(Largest);
HWY_EXPORT(SumOfExponentials);
HWY_EXPORT(Exponentiate);
HWY_EXPORT(Scale);

/// The loss of one row; the row becomes weight * (softmax - onehot) when `gradient`.
float row_loss(float* row, std::size_t n, std::size_t label, float weight, bool gradient) {
  const float most = HWY_DYNAMIC_DISPATCH(Largest)(row, n), at_label = row[label];
  const double sum = gradient ? HWY_DYNAMIC_DISPATCH(Exponentiate)(row, n, most)
                              : HWY_DYNAMIC_DISPATCH(SumOfExponentials)(row, n, most);
  if (gradient) {
    const double share = row[label] / sum;
    HWY_DYNAMIC_DISPATCH(Scale)(row, n, static_cast<float>(weight / sum));
    row[label] = static_cast<float>(weight * (share - 1));
  }
  return static_cast<float>(std::log(sum) + (static_cast<double>(most) - at_label));
}

void check(std::int64_t vocabulary, std::size_t logits, std::span<const std::int32_t> labels, std::size_t weight,
           std::size_t loss) {
  const auto rows = static_cast<std::int64_t>(labels.size());
  expect_values("cross_entropy", "logits", logits, rows * vocabulary);
  expect_values("cross_entropy", "loss", loss, rows);
  if (weight != 0) expect_values("cross_entropy", "weight", weight, rows);
  for (std::size_t r = 0; r < labels.size(); ++r) {
    if (labels[r] >= vocabulary) {
      throw ShapeError(text("cross_entropy: row ", r, " has label ", labels[r], "; the vocabulary has ", vocabulary));
    }
  }
}

}  // namespace

void cross_entropy(Threads& threads, std::int64_t vocabulary, std::span<float> logits,
                   std::span<const std::int32_t> labels, std::span<const float> weight, std::span<float> loss,
                   bool gradient) {
  check(vocabulary, logits.size(), labels, weight.size(), loss.size());
  const auto n = static_cast<std::size_t>(vocabulary);
  const std::size_t rows_of_a_tile = std::max<std::size_t>(1, 4096 / std::max<std::size_t>(1, n));
  threads.parallel_for(labels.size(), rows_of_a_tile, [&](std::size_t first, std::size_t last) {
    for (auto r = first; r < last; ++r) {
      float* row = logits.data() + r * n;
      if (labels[r] >= 0) {
        loss[r] = row_loss(row, n, static_cast<std::size_t>(labels[r]), weight.empty() ? 1.0F : weight[r], gradient);
      } else {
        loss[r] = 0;
        if (gradient) std::fill_n(row, n, 0.0F);
      }
    }
  });
}

}  // namespace tessera
#endif  // HWY_ONCE
