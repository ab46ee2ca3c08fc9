// Cross-entropy in Highway. Three passes over a row: the maximum, the exponentials and their sum, and for the gradient
// a scaling of the exponentials that the second pass left in the row. Subtracting the maximum keeps e^x finite.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "framework/kernels/cross_entropy.cpp"
#include <hwy/foreach_target.h>  // compiles this file once for each target
// must come after foreach_target.h
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>

#include "framework/kernels/cross_entropy.h"
#include "framework/kernels/extents.h"
#include "framework/kernels/range-inl.h"
#include "framework/kernels/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using range::D;
using range::V;

/// Maximum of x. Four vectors hide the latency of Max.
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

/// Sum over i of e^(x[i] - most); x is not changed (no gradient is wanted).
double SumOfExponentials(const float* x, std::size_t size, float most) {
  const V shift = hn::Set(D(), most);
  return range::Sum(size,
                    [&](std::size_t i, auto load) HWY_ATTR { return math::Exp(D(), hn::Sub(load(x + i), shift)); });
}

/// As SumOfExponentials, but replaces x[i] by e^(x[i] - most). Works in blocks that are summed while in the L1 cache.
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
}  // namespace tessera::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels {
namespace {

HWY_EXPORT(Largest);
HWY_EXPORT(SumOfExponentials);
HWY_EXPORT(Exponentiate);
HWY_EXPORT(Scale);

/// The loss of one row; if `gradient`, the row becomes weight * (softmax - onehot). The label's entry is computed in
/// double, because softmax - 1 cancels when the model is confident.
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

/// Throws ShapeError unless the sizes fit and every label is below the vocabulary.
void check(std::int64_t vocabulary, std::size_t logits, std::span<const std::int32_t> labels, std::size_t weight,
           std::size_t loss) {
  const auto rows = static_cast<std::int64_t>(labels.size());
  expect_values("cross_entropy", "logits", logits, rows * vocabulary);
  expect_values("cross_entropy", "loss", loss, rows);
  if (weight != 0) expect_values("cross_entropy", "weight", weight, rows);
  for (std::size_t r = 0; r < labels.size(); ++r) {
    if (labels[r] >= vocabulary) {
      throw ShapeError(
          text("cross_entropy: row ", r, " has label ", labels[r], "; the vocabulary size is ", vocabulary));
    }
  }
}

/// Rows per task: about 4096 logits, at least one row.
std::size_t rows_of_a_task(std::size_t columns) {
  return std::max<std::size_t>(1, 4096 / std::max<std::size_t>(1, columns));
}

}  // namespace

void cross_entropy(Threads& threads, std::int64_t vocabulary, std::span<float> logits,
                   std::span<const std::int32_t> labels, std::span<const float> weight, std::span<float> loss,
                   bool gradient) {
  check(vocabulary, logits.size(), labels, weight.size(), loss.size());
  const auto n = static_cast<std::size_t>(vocabulary);
  threads.parallel_for(labels.size(), rows_of_a_task(n), [&](std::size_t first, std::size_t last) {
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

void cross_entropy_largest(Threads& threads, const CrossEntropyPart& part, std::span<const float> logits,
                           std::span<float> most) {
  const auto n = static_cast<std::size_t>(part.columns);
  expect_values("cross_entropy", "logits", logits.size(), static_cast<std::int64_t>(most.size()) * part.columns);
  threads.parallel_for(most.size(), rows_of_a_task(n), [&](std::size_t first, std::size_t last) {
    for (auto r = first; r < last; ++r) most[r] = HWY_DYNAMIC_DISPATCH(Largest)(logits.data() + r * n, n);
  });
}

// logit[label] - most is computed by the one rank that holds the label; the other ranks contribute 0 to the all-reduce.
void cross_entropy_sums(Threads& threads, const CrossEntropyPart& part, std::span<float> logits,
                        std::span<const std::int32_t> labels, std::span<const float> most, std::span<double> sums) {
  check(part.vocabulary, labels.size() * static_cast<std::size_t>(part.vocabulary), labels, 0, most.size());
  expect_values("cross_entropy", "sums", sums.size(), static_cast<std::int64_t>(2 * labels.size()));
  const auto n = static_cast<std::size_t>(part.columns);
  threads.parallel_for(labels.size(), rows_of_a_task(n), [&](std::size_t first, std::size_t last) {
    for (auto r = first; r < last; ++r) {
      float* row = logits.data() + r * n;
      const auto at = labels[r] - part.first_column;
      const bool here = labels[r] >= 0 && at >= 0 && at < part.columns;
      sums[2 * r + 1] = here ? static_cast<double>(row[at]) - static_cast<double>(most[r]) : 0;
      sums[2 * r] = HWY_DYNAMIC_DISPATCH(Exponentiate)(row, n, most[r]);
    }
  });
}

void cross_entropy_finish(Threads& threads, const CrossEntropyPart& part, std::span<float> logits,
                          std::span<const std::int32_t> labels, std::span<const double> sums,
                          std::span<const float> weight, std::span<float> loss, bool gradient) {
  const auto n = static_cast<std::size_t>(part.columns);
  threads.parallel_for(labels.size(), rows_of_a_task(n), [&](std::size_t first, std::size_t last) {
    for (auto r = first; r < last; ++r) {
      float* row = logits.data() + r * n;
      const bool counts = labels[r] >= 0;
      loss[r] = counts ? static_cast<float>(std::log(sums[2 * r]) - sums[2 * r + 1]) : 0.0F;
      if (!gradient) continue;
      if (!counts) {
        std::fill_n(row, n, 0.0F);
        continue;
      }
      const double w = weight.empty() ? 1.0 : static_cast<double>(weight[r]);
      const auto at = labels[r] - part.first_column;
      const bool here = at >= 0 && at < part.columns;
      const double share = here ? row[at] / sums[2 * r] : 0;
      HWY_DYNAMIC_DISPATCH(Scale)(row, n, static_cast<float>(w / sums[2 * r]));
      if (here) row[at] = static_cast<float>(w * (share - 1));
    }
  });
}

}  // namespace tessera::kernels
#endif  // HWY_ONCE
