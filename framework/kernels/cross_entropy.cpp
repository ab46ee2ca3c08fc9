#include "framework/kernels/cross_entropy.h"

#include <algorithm>
#include <cmath>

#include "framework/kernels/extents.h"

namespace tessera {
namespace {

double sum_of_exponentials(const float* row, std::size_t n, float most) {
  double sum = 0;
  for (std::size_t i = 0; i < n; ++i) sum += std::exp(row[i] - most);
  return sum;
}

void write_gradient(float* row, std::size_t n, std::size_t label, double lse, float weight) {
  for (std::size_t i = 0; i < n; ++i) {
    row[i] = weight * static_cast<float>(std::exp(row[i] - lse) - (i == label ? 1.0 : 0.0));
  }
}

}  // namespace

void cross_entropy(Threads& threads, std::int64_t vocabulary, std::span<float> logits,
                   std::span<const std::int32_t> labels, std::span<const float> weight, std::span<float> loss,
                   bool gradient) {
  const auto rows = static_cast<std::int64_t>(labels.size());
  expect_values("cross_entropy", "logits", logits.size(), rows * vocabulary);
  expect_values("cross_entropy", "loss", loss.size(), rows);
  if (!weight.empty()) expect_values("cross_entropy", "weight", weight.size(), rows);
  for (std::size_t r = 0; r < labels.size(); ++r) {
    if (labels[r] >= vocabulary) {
      throw ShapeError(text("cross_entropy: row ", r, " has label ", labels[r], "; the vocabulary has ", vocabulary));
    }
  }
  const auto n = static_cast<std::size_t>(vocabulary);
  threads.parallel_for(labels.size(), 1, [&](std::size_t r, std::size_t) {
    float* row = logits.data() + r * n;
    if (labels[r] < 0) {
      loss[r] = 0;
      if (gradient) std::fill_n(row, n, 0.0F);
      return;
    }
    const auto label = static_cast<std::size_t>(labels[r]);
    const float most = *std::max_element(row, row + n);
    const double lse = most + std::log(sum_of_exponentials(row, n, most));
    loss[r] = static_cast<float>(lse - row[label]);
    if (gradient) write_gradient(row, n, label, lse, weight.empty() ? 1.0F : weight[r]);
  });
}

}  // namespace tessera
