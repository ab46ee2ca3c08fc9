// Random numbers keyed by sample and element, against the words of their key.
#include "framework/kernels/sample_noise.h"

#include "framework/base/error.h"
#include "framework/kernels/type_conversion.h"
#include "tests/kernels/reference.h"

namespace tessera::kernels {
namespace {

const RandomKey noise_key(77, Purpose::router_jitter, 5);
const std::vector<std::int64_t> ids = {3, 1LL << 40, 17};

std::uint64_t element_of(const SampleNoise& noise, std::size_t element) {
  const auto i = static_cast<std::int64_t>(element);
  return static_cast<std::uint64_t>(noise.first_element + i + (i >= noise.gap_at ? noise.gap : 0));
}

using SampleNumbers = ForEveryIsa;
FOR_EVERY_ISA(SampleNumbers);

TEST_P(SampleNumbers, JitterMultipliesEachElementByItsFactor) {
  constexpr double eps = 0.3;
  for (const std::size_t per_sample : {1, 6, 1021, 9001}) {
    for (const std::int64_t first : {0, 1, 4098}) {
      SampleNoise noise{noise_key, ids, first};
      if (first == 1) noise.gap_at = static_cast<std::int64_t>(per_sample) / 3, noise.gap = 4097;
      const auto size = ids.size() * per_sample;
      const auto x = random_normal(size, 1), before = random_normal(size, 2);
      std::vector<double> expected, added;
      for (std::size_t i = 0; i < size; ++i) {
        const auto id = static_cast<std::uint64_t>(ids[i / per_sample]);
        const double u = 1 - eps + 2 * eps * noise_key.uniform(id, element_of(noise, i % per_sample));
        expected.push_back(u * x[i]);
        added.push_back(u * x[i] + before[i]);
      }
      const auto all = on_any_threads([&](Threads& threads) {
        std::vector<float> y(size), sum = before, in_place = x;
        jitter(threads, noise, eps, x, y, false);
        jitter(threads, noise, eps, x, sum, true);
        jitter(threads, noise, eps, in_place, in_place, false);
        EXPECT_TRUE(same_bits(y, in_place));
        return joined({y, sum});
      });
      // Factor, product and sum are rounded, each by at most 6e-8 of numbers up to about 5.
      EXPECT_CLOSE(std::span<const float>(all).first(size), expected, 4e-7);
      EXPECT_CLOSE(std::span<const float>(all).subspan(size), added, 8e-7);
    }
  }
}

TEST_P(SampleNumbers, NormalNumbersAreThoseOfTheKey) {
  constexpr std::size_t per_sample = 1501;
  SampleNoise noise{noise_key, ids, 6};
  noise.gap_at = 700, noise.gap = 33;
  const auto y = on_any_threads([&](Threads& threads) {
    std::vector<float> out(ids.size() * per_sample);
    draw_normal(threads, noise, out);
    return out;
  });
  for (std::size_t i = 0; i < y.size(); ++i)
    ASSERT_EQ(y[i], static_cast<float>(noise_key.normal(static_cast<std::uint64_t>(ids[i / per_sample]),
                                                        element_of(noise, i % per_sample))));
}

TEST(SampleNumbersOf16Bits, AreComputedInFloatAndRoundedOnce) {
  Threads threads(2);
  auto x = random_normal(3000, 1);
  round_to(threads, DType::bfloat16, x);
  std::vector<std::byte> narrow_x(2 * x.size()), narrow_y(2 * x.size());
  const MutableElements in(narrow_x.data(), x.size(), DType::bfloat16), out(narrow_y.data(), x.size(), DType::bfloat16);
  narrow(threads, x, in);
  const SampleNoise noise{noise_key, ids, 5};
  std::vector<float> expected(x.size()), wide(x.size()), got(x.size());
  jitter(threads, noise, 0.25, x, expected, false);
  jitter(threads, noise, 0.25, Elements(narrow_x.data(), x.size(), DType::bfloat16), wide, false);
  EXPECT_TRUE(same_bits(expected, wide));
  jitter(threads, noise, 0.25, Elements(narrow_x.data(), x.size(), DType::bfloat16), out, false);
  round_to(threads, DType::bfloat16, expected);
  widen(threads, Elements(narrow_y.data(), x.size(), DType::bfloat16), got);
  EXPECT_TRUE(same_bits(expected, got));
}

TEST(SampleNumbersErrors, SamplesThatDoNotFitAreRefused) {
  std::vector<float> x(7), y(7), longer(8);
  Threads alone(1);
  EXPECT_THROW(jitter(alone, {noise_key, ids}, 0.5, x, y, false), ShapeError);
  EXPECT_THROW(jitter(alone, {noise_key, ids}, 0.5, x, longer, false), ShapeError);
  EXPECT_THROW(draw_normal(alone, {noise_key, {}}, y), ShapeError);
}

}  // namespace
}  // namespace tessera::kernels
