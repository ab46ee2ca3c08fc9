#include "framework/kernels/dropout.h"

#include "framework/base/error.h"
#include "framework/kernels/philox.h"
#include "tests/kernels/reference.h"

namespace tessera::kernels {
namespace {

const RandomKey dropout_key(1234, Purpose::hidden_dropout, 7);

/// What the contract says, a word at a time.
float keep(const DropoutMask& mask, std::size_t sample, std::size_t element) {
  const auto i = static_cast<std::int64_t>(element);
  const auto e = static_cast<std::uint64_t>(mask.first_element + i + (i >= mask.gap_at ? mask.gap : 0));
  const auto word = mask.key.words(static_cast<std::uint64_t>(mask.sample_ids[sample]), e / 4)[e % 4];
  return word < mask.rate * 0x1p32 ? 0.0F : 1.0F;
}

using Dropout = ForEveryIsa;
FOR_EVERY_ISA(Dropout);

TEST_P(Dropout, ManyWordsAtATimeEqualTheKeysOwn) {
  const std::vector<std::uint64_t> starts = {0, 5, 0xfffffff9, 0x7ffffffff3};  // the second half carries over
  for (const auto first : starts) {
    for (const std::size_t blocks : {1, 4, 15, 16, 17, 63}) {
      const std::uint64_t id = 0x123456789abcULL;
      std::vector<std::uint32_t> words(4 * blocks);
      philox_words(dropout_key, id, first, blocks, words.data());
      for (std::size_t i = 0; i < words.size(); ++i)
        ASSERT_EQ(words[i], dropout_key.words(id, first + i / 4)[i % 4]) << first << " " << i;
    }
  }
}

TEST_P(Dropout, EveryElementFollowsItsWord) {
  const std::vector<std::int64_t> ids = {3, 1LL << 40, 17};
  for (const std::size_t per_sample : {1, 6, 1021, 9001}) {
    for (const std::int64_t first : {0, 1, 4098}) {
      auto mask = DropoutMask{dropout_key, ids, 0.3, first};
      if (first == 1) mask.gap_at = static_cast<std::int64_t>(per_sample) / 3, mask.gap = 4097;
      const auto size = ids.size() * per_sample;
      const auto x = random_normal(size, 1), residual = random_normal(size, 2);
      std::vector<double> expected, with_residual;
      for (std::size_t i = 0; i < size; ++i) {
        expected.push_back(x[i] * keep(mask, i / per_sample, i % per_sample) / (1 - mask.rate));
        with_residual.push_back(expected.back() + residual[i]);
      }
      const auto all = on_any_threads([&](Threads& threads) {
        std::vector<float> y(size), sum(size), dx(size), in_place = x, on_residual = residual;
        dropout_add_forward(threads, mask, x, {}, y);
        dropout_add_forward(threads, mask, x, residual, sum);
        dropout_add_forward(threads, mask, x, on_residual, on_residual);
        EXPECT_TRUE(same_bits(sum, on_residual));
        dropout_backward(threads, mask, x, dx);
        dropout_backward(threads, mask, in_place, in_place);
        EXPECT_TRUE(same_bits(dx, in_place));
        EXPECT_TRUE(same_bits(dx, y));
        return joined({y, sum});
      });
      EXPECT_CLOSE(std::span<const float>(all).first(size), expected, 2e-7);
      EXPECT_CLOSE(std::span<const float>(all).subspan(size), with_residual, 2e-7);
    }
  }
}

TEST_P(Dropout, AboutTheRateIsDropped) {
  const std::vector<std::int64_t> ids = {5};
  const std::vector<float> x(100000, 1.0F);
  std::vector<float> y(x.size());
  Threads alone(1);
  dropout_add_forward(alone, {dropout_key, ids, 0.1}, x, {}, y);
  const auto dropped = std::count(y.begin(), y.end(), 0.0F);
  EXPECT_NEAR(static_cast<double>(dropped), 10000, 5 * 95);  // five standard deviations
}

TEST_P(Dropout, RateZeroLeavesTheSum) {
  const auto x = random_normal(1003, 1), residual = random_normal(1003, 2);
  std::vector<float> y(x.size()), dx(x.size());
  Threads alone(1);
  dropout_add_forward(alone, {}, x, residual, y);
  dropout_backward(alone, {}, x, dx);
  for (std::size_t i = 0; i < x.size(); ++i) EXPECT_EQ(y[i], residual[i] + x[i]);
  EXPECT_TRUE(same_bits(dx, x));
}

TEST(DropoutErrors, SamplesThatDoNotFitAreRefused) {
  const std::vector<std::int64_t> ids = {1, 2};
  std::vector<float> x(7), y(7);
  Threads alone(1);
  EXPECT_THROW(dropout_add_forward(alone, {dropout_key, ids, 0.5}, x, {}, y), ShapeError);
}

}  // namespace
}  // namespace tessera::kernels
