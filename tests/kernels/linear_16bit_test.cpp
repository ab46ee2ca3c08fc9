// Linear layers whose operands are bfloat16 or float16: products of the rounded values, summed in fp32, rounded once.
#include <gtest/gtest.h>

#include <iostream>

#include "framework/kernels/activation.h"
#include "framework/kernels/gemm_packed.h"
#include "framework/kernels/linear.h"
#include "framework/kernels/type_conversion.h"
#include "tests/kernels/emulated_tiles.h"
#include "tests/kernels/reference.h"
#include "tests/kernels/typed.h"
#include "tests/sanitized.h"

namespace tessera::kernels {
namespace {

struct Types {
  DType left, right, result;
};

std::string story(LinearExtents e, const Types& t) {
  return text(e.rows, " x ", e.in, " x ", e.out, ", ", name_of(t.left), " by ", name_of(t.right), " to ",
              name_of(t.result));
}

/// Relative rounding error of a result of this type, and of a float sum of K products of normal numbers (linear_test).
double tolerance(DType result, std::int64_t K) {
  const double rounding = result == DType::bfloat16 ? 0x1p-8 : result == DType::float16 ? 0x1p-11 : 0;
  return rounding + 2.2e-7 * static_cast<double>(K + 8);
}

/// Extents with an even and an odd number of summands for each product, tails of every tile, several blocks of k, a
/// product of few rows, and several tasks.
const std::vector<LinearExtents> extents = {{1, 1, 1},      {1, 48, 50},    {2, 7, 5},     {6, 770, 98},
                                            {33, 33, 34},   {34, 64, 200},  {40, 771, 97}, {64, 48, 192},
                                            {66, 1600, 50}, {130, 72, 259}, {300, 50, 612}};

const std::vector<Types> mixes = {
    {DType::bfloat16, DType::bfloat16, DType::bfloat16}, {DType::bfloat16, DType::bfloat16, DType::float32},
    {DType::float16, DType::float16, DType::float16},    {DType::float16, DType::float16, DType::float32},
    {DType::float32, DType::bfloat16, DType::bfloat16},  {DType::bfloat16, DType::float32, DType::float32}};

using Linear16Bit = ForEveryIsa;
FOR_EVERY_ISA(Linear16Bit);

std::vector<float> random_of(std::int64_t count, unsigned seed) {
  return random_normal(static_cast<std::size_t>(count), seed);
}

TEST_P(Linear16Bit, ForwardIsTheProductOfTheRoundedValues) {
  int number = 0;
  for (const auto& types : mixes)
    for (const auto e : extents) {
      if (number++ % part_of_inputs != 0) continue;
      Typed x(types.left, random_of(e.rows * e.in, 1)), w(types.right, random_of(e.out * e.in, 2));
      const auto bias = random_of(e.out, 3);
      std::vector<double> expected;
      for (std::int64_t r = 0; r < e.rows; ++r)
        for (std::int64_t n = 0; n < e.out; ++n) {
          double sum = bias[static_cast<std::size_t>(n)];
          for (std::int64_t k = 0; k < e.in; ++k) sum += double{x.at(r * e.in + k)} * w.at(n * e.in + k);
          expected.push_back(sum);
        }
      const auto y = on_any_threads([&](Threads& threads) {
        Typed out(types.result, random_of(e.rows * e.out, 4));
        linear_forward(threads, e, x.elements(), w.elements(), bias, out.elements());
        return out.now();
      });
      EXPECT_CLOSE(y, expected, tolerance(types.result, e.in)) << story(e, types);
    }
}

/// Which may not have to be kept: activation_forward gives it again.
TEST_P(Linear16Bit, TheActivationIsOfTheRoundedSum) {
  for (const auto type : {DType::bfloat16, DType::float16})
    for (const auto e : extents) {
      Typed x(type, random_of(e.rows * e.in, 1)), w(type, random_of(e.out * e.in, 2));
      const auto bias = random_of(e.out, 3);
      const std::vector<float> none(static_cast<std::size_t>(e.rows * e.out), NAN);
      const auto both = on_any_threads([&](Threads& some) {
        Typed before(type, none), y(type, none);
        linear_activation_forward(some, e, Activation::gelu_tanh, x.elements(), w.elements(), bias, before.elements(),
                                  y.elements());
        return joined({before.now(), y.now()});
      });
      Threads threads(2);
      Typed before(type, none), y(type, none);
      linear_forward(threads, e, x.elements(), w.elements(), bias, before.elements());
      activation_forward(threads, Activation::gelu_tanh, before.elements(), y.elements());
      EXPECT_TRUE(same_bits(both, joined({before.now(), y.now()}))) << story(e, {type, type, type});
    }
}

TEST_P(Linear16Bit, BackwardInputAddsInFp32AndRoundsOnce) {
  int number = 0;
  for (const auto& types : mixes)
    for (const auto e : extents)
      for (const bool add : {false, true}) {
        if (number++ % part_of_inputs != 0) continue;
        Typed dy(types.left, random_of(e.rows * e.out, 1)), w(types.right, random_of(e.out * e.in, 2));
        Typed before(types.result, random_of(e.rows * e.in, 3));
        std::vector<double> expected;
        for (std::int64_t r = 0; r < e.rows; ++r)
          for (std::int64_t i = 0; i < e.in; ++i) {
            double sum = add ? before.at(r * e.in + i) : 0;
            for (std::int64_t n = 0; n < e.out; ++n) sum += double{dy.at(r * e.out + n)} * w.at(n * e.in + i);
            expected.push_back(sum);
          }
        const auto dx = on_any_threads([&](Threads& threads) {
          Typed out(types.result, random_of(e.rows * e.in, 3));
          linear_backward_input(threads, e, dy.elements(), w.elements(), out.elements(), add);
          return out.now();
        });
        EXPECT_CLOSE(dx, expected, tolerance(types.result, e.out)) << story(e, types) << (add ? ", added" : "");
      }
}

TEST_P(Linear16Bit, BackwardWeightAndBiasAddToFloats) {
  int number = 0;
  for (const auto& types : mixes)
    for (const auto e : extents) {
      if (number++ % part_of_inputs != 0) continue;
      Typed dy(types.left, random_of(e.rows * e.out, 1)), x(types.right, random_of(e.rows * e.in, 2));
      const auto dw_before = random_of(e.out * e.in, 3), db_before = random_of(e.out, 4);
      std::vector<double> expected(dw_before.begin(), dw_before.end()), bias(db_before.begin(), db_before.end());
      for (std::int64_t n = 0; n < e.out; ++n)
        for (std::int64_t r = 0; r < e.rows; ++r) {
          bias[static_cast<std::size_t>(n)] += dy.at(r * e.out + n);
          for (std::int64_t i = 0; i < e.in; ++i)
            expected[static_cast<std::size_t>(n * e.in + i)] += double{dy.at(r * e.out + n)} * x.at(r * e.in + i);
        }
      expected.insert(expected.end(), bias.begin(), bias.end());
      const auto both = on_any_threads([&](Threads& threads) {
        auto dw = dw_before, db = db_before;
        linear_backward_weight(threads, e, dy.elements(), x.elements(), dw, true);
        linear_backward_bias(threads, e.rows, e.out, dy.elements(), db);
        return joined({dw, db});
      });
      EXPECT_CLOSE(both, expected, tolerance(DType::float32, e.rows)) << story(e, types);
    }
}

TEST_P(Linear16Bit, ValuesThatAreNotFiniteStayNotFinite) {
  for (const auto type : {DType::bfloat16, DType::float16}) {
    const LinearExtents e{40, 64, 48};
    auto values = random_of(e.rows * e.in, 1);
    values[static_cast<std::size_t>(3 * e.in + 5)] = NAN;
    values[static_cast<std::size_t>(7 * e.in + 9)] = INFINITY;
    Typed x(type, values), w(type, random_of(e.out * e.in, 2)), y(type, random_of(e.rows * e.out, 3));
    Threads threads(2);
    linear_forward(threads, e, x.elements(), w.elements(), {}, y.elements());
    const auto out = y.now();
    for (std::int64_t r = 0; r < e.rows; ++r)
      for (std::int64_t n = 0; n < e.out; ++n)
        EXPECT_EQ(std::isfinite(out[static_cast<std::size_t>(r * e.out + n)]), r != 3 && r != 7) << r << " " << n;
  }
}

// Random extents and strides through tiles of pairs in plain C++: on machines whose processor has none of its own.
TEST(PairProduct, EqualsThePlainLoopForRandomExtents) {
  const auto seed = std::random_device{}();
  std::cout << "seed " << seed << "\n";
  std::mt19937 random(seed);
  const auto upto = [&](std::int64_t most) {
    return 1 + static_cast<std::int64_t>(random() % static_cast<unsigned>(most));
  };
  for (int round = 0; round < 60; ++round) {
    const bool a_outer = random() % 2 == 0, b_outer = random() % 2 == 0, add = random() % 2 == 0;
    // One row whose outer index is k lies in memory as one whose inner index is: then K must be even.
    const std::int64_t M = upto(90) + (a_outer ? 1 : 0), N = upto(120) + (b_outer ? 1 : 0);
    const std::int64_t K = a_outer && b_outer ? upto(100) : 2 * upto(50);
    const auto result = a_outer || random() % 2 == 0 ? DType::float32 : DType::bfloat16;
    Typed a(DType::bfloat16, random_of(M * K, random())), b(DType::bfloat16, random_of(N * K, random()));
    const auto before = random_of(M * N, random());
    const std::int64_t packed_floats = upto(4000);
    Threads threads(2);
    Typed c(result, before);
    std::vector<double> expected;
    for (std::int64_t i = 0; i < M; ++i)
      for (std::int64_t j = 0; j < N; ++j) {
        double sum = add ? c.at(i * N + j) : 0;
        for (std::int64_t k = 0; k < K; ++k)
          sum += double{a.at(a_outer ? k * M + i : i * K + k)} * b.at(b_outer ? k * N + j : j * K + k);
        expected.push_back(sum);
      }
    MatrixProduct p{M,
                    N,
                    K,
                    {a.elements(), a_outer ? 1 : K, a_outer ? M : 1},
                    {b.elements(), b_outer ? 1 : K, b_outer ? N : 1},
                    c.elements()};
    p.add = add;
    const bool tiles_of_words = random() % 2 == 0;
    multiply_packed(threads, tiles_of_words ? emulated_pairs<4>() : emulated_pairs<1>(), p, packed_floats);
    EXPECT_CLOSE(c.now(), expected, tolerance(result, K))
        << M << " x " << N << " x " << K << (a_outer ? ", k outer in a" : "") << (b_outer ? ", k outer in b" : "")
        << (add ? ", added" : "") << ", " << packed_floats << " floats at once"
        << (tiles_of_words ? ", strips of blocks" : "");
  }
}

}  // namespace
}  // namespace tessera::kernels
