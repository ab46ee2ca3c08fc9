#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "framework/kernels/cpu.h"
#include "framework/kernels/threads.h"

namespace tessera::kernels {

/// `size` normal random numbers, the same for the same seed.
inline std::vector<float> random_normal(std::size_t size, unsigned seed, float mean = 0, float deviation = 1) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> draw(mean, deviation);
  std::vector<float> out(size);
  for (auto& v : out) v = draw(rng);
  return out;
}

/// The largest |got - expected| / max(1, |expected|), and where. A NaN on one side alone is an infinite error.
struct Worst {
  double error = 0;
  std::size_t at = 0;
};
template <class Expected>
Worst worst_difference(std::span<const float> got, const std::vector<Expected>& expected) {
  EXPECT_EQ(got.size(), expected.size());
  Worst worst;
  for (std::size_t i = 0; i < std::min(got.size(), expected.size()); ++i) {
    const double g = got[i], e = static_cast<double>(expected[i]);
    double error = std::fabs(g - e) / std::max(1.0, std::fabs(e));
    if (std::isnan(error)) error = (std::isnan(g) && std::isnan(e)) || g == e ? 0 : HUGE_VAL;
    if (error > worst.error) worst = {error, i};
  }
  return worst;
}

/// EXPECT_CLOSE(got, expected, tolerance): as above, with a message that names the worst element.
template <class Expected>
testing::AssertionResult close_to(std::span<const float> got, const std::vector<Expected>& expected, double tolerance) {
  if (got.size() != expected.size())
    return testing::AssertionFailure() << got.size() << " values, " << expected.size() << " expected";
  const Worst worst = worst_difference(got, expected);
  if (worst.error <= tolerance) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "element " << worst.at << " is " << got[worst.at] << ", expected "
                                     << expected[worst.at] << ": error " << worst.error << " > " << tolerance;
}
#define EXPECT_CLOSE(got, expected, tolerance) EXPECT_TRUE(close_to(got, expected, tolerance))

inline bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}

/// Runs a test once for every instruction set of this machine:
///
///   using Norm = ForEveryIsa;
///   FOR_EVERY_ISA(Norm);
///   TEST_P(Norm, EqualsThePlainLoop) {
///     const auto y = on_any_threads([&](Threads& threads) { ...; return y; });   // same bits on 1, 2 and 3 threads
///     EXPECT_CLOSE(y, expected, 1e-6);
///   }
class ForEveryIsa : public testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    before_ = chosen_isa();
    force_isa(GetParam());
  }
  void TearDown() override { force_isa(before_); }

  /// What `body` returns (a vector of float) on one thread, after a check that two and three threads give the same
  /// bits.
  template <class Body>
  static std::vector<float> on_any_threads(const Body& body) {
    Threads alone(1);
    std::vector<float> result = body(alone);
    for (const int count : {2, 3}) {
      Threads threads(count);
      EXPECT_TRUE(same_bits(result, body(threads))) << "one thread and " << count << " differ in bits";
    }
    return result;
  }

 private:
  Isa before_ = Isa::portable;
};

inline std::string name_of_parameter(const testing::TestParamInfo<Isa>& info) {
  return std::string(name_of(info.param));
}
#define FOR_EVERY_ISA(suite) \
  INSTANTIATE_TEST_SUITE_P(Kernels, suite, testing::ValuesIn(available_isas()), name_of_parameter)

/// All results of a kernel in one vector, for on_any_threads.
inline std::vector<float> joined(std::initializer_list<std::span<const float>> parts) {
  std::vector<float> all;
  for (const auto part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

}  // namespace tessera::kernels
