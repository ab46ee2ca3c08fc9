#include "framework/kernels/cross_entropy.h"

#include "framework/base/error.h"
#include "tests/kernels/reference.h"

namespace tessera::kernels {
namespace {

using Doubles = std::vector<double>;

/// -log softmax(row)[label]
double plain_loss(const double* row, std::size_t n, std::size_t label) {
  const double most = *std::max_element(row, row + n);
  double sum = 0;
  for (std::size_t i = 0; i < n; ++i) sum += std::exp(row[i] - most);
  return std::log(sum) + most - row[label];
}

struct LossWork {
  std::size_t rows, n;
  std::vector<float> logits, weight;
  std::vector<std::int32_t> labels;

  LossWork(std::size_t row_count, std::size_t vocabulary) : rows(row_count), n(vocabulary) {
    logits = random_normal(rows * n, 1, 0, 3);
    weight = random_normal(rows, 2);
    for (std::size_t r = 0; r < rows; ++r) labels.push_back(static_cast<std::int32_t>(r * 7919 % n));
    for (std::size_t i = 0; i < n; ++i) {  // an exponential of these overflows, or is nothing but zeros
      logits[i] += 90;
      if (rows > 2) logits[2 * n + i] -= 90;
    }
    if (rows > 1) labels[1] = -100;
    labels.back() = static_cast<std::int32_t>(n - 1);
  }
};

using CrossEntropy = ForEveryIsa;
FOR_EVERY_ISA(CrossEntropy);

TEST_P(CrossEntropy, LossAndGradientEqualThePlainLoop) {
  for (const std::size_t n : {1, 3, 16, 250, 4099}) {
    const LossWork work(n == 4099 ? 3 : 29, n);
    Doubles losses, gradient;
    for (std::size_t r = 0; r < work.rows; ++r) {
      const Doubles row(work.logits.begin() + static_cast<std::ptrdiff_t>(r * n),
                        work.logits.begin() + static_cast<std::ptrdiff_t>((r + 1) * n));
      const bool counts = work.labels[r] >= 0;
      const auto label = static_cast<std::size_t>(std::max(0, work.labels[r]));
      losses.push_back(counts ? plain_loss(row.data(), n, label) : 0);
      for (std::size_t i = 0; i < n; ++i) {
        const double share = std::exp(-plain_loss(row.data(), n, i));
        gradient.push_back(counts ? work.weight[r] * (share - (i == label ? 1 : 0)) : 0);
      }
    }
    const auto all = on_any_threads([&](Threads& threads) {
      std::vector<float> loss(work.rows), alone(work.rows);
      auto logits = work.logits;
      cross_entropy(threads, static_cast<std::int64_t>(n), logits, work.labels, work.weight, alone, false);
      EXPECT_TRUE(same_bits(logits, work.logits)) << "written without being asked to";
      cross_entropy(threads, static_cast<std::int64_t>(n), logits, work.labels, work.weight, loss, true);
      EXPECT_CLOSE(alone, loss, 3e-7);
      return joined({loss, logits});
    });
    EXPECT_CLOSE(std::span<const float>(all).first(work.rows), losses, 3e-7);
    EXPECT_CLOSE(std::span<const float>(all).subspan(work.rows), gradient, 5e-7);
    for (std::size_t i = 0; work.rows > 1 && i < n; ++i) {
      ASSERT_EQ(all[work.rows + n + i], 0.0F) << "an ignored row has a gradient";
    }
  }
}

TEST_P(CrossEntropy, GradientEqualsCentralDifferences) {
  const LossWork work(3, 17);
  auto logits = work.logits;
  std::vector<float> loss(3);
  Threads alone(1);
  cross_entropy(alone, 17, logits, work.labels, {}, loss, true);
  for (const std::size_t r : {0, 2})
    for (std::size_t i = 0; i < 17; ++i) {
      Doubles row(work.logits.begin() + static_cast<std::ptrdiff_t>(r * 17),
                  work.logits.begin() + static_cast<std::ptrdiff_t>((r + 1) * 17));
      const auto label = static_cast<std::size_t>(work.labels[r]);
      const double here = row[i], step = 1e-5;
      row[i] = here + step;
      const double up = plain_loss(row.data(), 17, label);
      row[i] = here - step;
      EXPECT_NEAR(logits[r * 17 + i], (up - plain_loss(row.data(), 17, label)) / (2 * step), 1e-6);
    }
}

TEST_P(CrossEntropy, AWideVocabularyKeepsItsDigits) {
  const std::size_t n = 200003;
  const auto logits = random_normal(n, 5, 0, 2);
  const Doubles row(logits.begin(), logits.end());
  auto in_place = logits;
  std::vector<float> loss(1);
  Threads alone(1);
  cross_entropy(alone, static_cast<std::int64_t>(n), in_place, std::vector<std::int32_t>{77}, {}, loss, true);
  EXPECT_NEAR(loss[0], plain_loss(row.data(), n, 77), 2e-6);  // one unit in the last place of a loss of about 15
  double sum = 0;
  for (const double g : in_place) sum += g;
  EXPECT_NEAR(sum, 0, 1e-6);
}

TEST_P(CrossEntropy, NaNAndInfinityReachTheLoss) {
  Threads alone(1);
  for (const float bad : {NAN, INFINITY}) {
    std::vector<float> logits(100, 1.0F), loss(1);
    logits[41] = bad;
    cross_entropy(alone, 100, logits, std::vector<std::int32_t>{3}, {}, loss, false);
    EXPECT_FALSE(std::isfinite(loss[0]));
  }
}

TEST(CrossEntropyErrors, ALabelBeyondTheVocabularyIsNamed) {
  std::vector<float> logits(8), loss(2);
  Threads alone(1);
  EXPECT_THROW(cross_entropy(alone, 4, logits, std::vector<std::int32_t>{0, 4}, {}, loss, false), ShapeError);
}

}  // namespace
}  // namespace tessera::kernels
