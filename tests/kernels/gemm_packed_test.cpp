#include "framework/kernels/gemm_packed.h"

#include <gtest/gtest.h>

#include "tests/kernels/reference.h"
#include "tests/kernels/typed.h"

namespace tessera::kernels {
namespace {

/// The instruction sets that have register tiles of their own.
std::vector<Isa> isas_with_tiles() {
  auto all = available_isas();
  all.erase(all.begin());
  return all;
}

const TileKernels& tiles_of(Isa isa) { return isa >= Isa::avx512 ? tiles_avx512() : tiles_avx2(); }

class PackedProduct : public ForEveryIsa {
 protected:
  const TileKernels& tiles() const { return tiles_of(GetParam()); }

  /// c = a b, or c += a b, where the summed index is the outer one of a, and the inner or the outer one of b.
  void expect_plain_loop(std::int64_t M, std::int64_t N, std::int64_t K, bool b_is_flipped, bool add,
                         std::int64_t packed_floats) {
    const auto size = [](std::int64_t x, std::int64_t y) { return static_cast<std::size_t>(x * y); };
    const auto a = random_normal(size(K, M), 1), b = random_normal(size(K, N), 2),
               before = random_normal(size(M, N), 3);
    const auto product = on_any_threads([&](Threads& threads) {
      auto c = before;
      MatrixProduct p{M, N, K, {a, 1, M}, {b, b_is_flipped ? 1 : K, b_is_flipped ? N : 1}, c};
      p.add = add;
      multiply_packed(threads, tiles(), p, packed_floats);
      return c;
    });
    std::vector<double> expected(before.begin(), before.end());
    if (!add) std::fill(expected.begin(), expected.end(), 0.0);
    for (std::int64_t k = 0; k < K; ++k)
      for (std::int64_t i = 0; i < M; ++i)
        for (std::int64_t j = 0; j < N; ++j)
          expected[size(i, N) + static_cast<std::size_t>(j)] +=
              double{a[size(k, M) + static_cast<std::size_t>(i)]} *
              b[b_is_flipped ? size(k, N) + static_cast<std::size_t>(j) : size(j, K) + static_cast<std::size_t>(k)];
    // The error of a float sum of K products of normal numbers; see linear_test.cpp.
    EXPECT_CLOSE(product, expected, 1.1e-7 * static_cast<double>(K + 8))
        << M << " x " << N << " x " << K << ", " << packed_floats << " floats at once, "
        << (b_is_flipped ? "b flipped" : "b as it is") << (add ? ", added" : "");
  }
};

INSTANTIATE_TEST_SUITE_P(Kernels, PackedProduct, testing::ValuesIn(isas_with_tiles()), name_of_parameter);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(PackedProduct);

// Few columns: b is packed by all threads together, at least one block of k at a time.
TEST_P(PackedProduct, OfFewColumnsAndManySummandsIsComputedInPieces) {
  const auto depth = tiles().depth, panel = tiles().cols;
  for (const auto pieces : {2, 3})
    for (const std::int64_t N : {std::int64_t{1}, panel + 3})
      for (const bool b_is_flipped : {false, true})
        for (const bool add : {false, true}) {
          expect_plain_loop(37, N, pieces * depth - 5, b_is_flipped, add, 1);
          expect_plain_loop(37, N, pieces * 2 * depth + 1, b_is_flipped, add,
                            2 * depth * (panel * ((N + panel - 1) / panel)));
        }
}

// The last of 31 blocks of k is shorter than the others by as much as it can be. The packed columns take more memory
// than a thread's ready buffers have: sanitizers see what is written behind them.
TEST_P(PackedProduct, OfMoreSummandsThanReadyBuffersHoldStaysInItsMemory) {
  const auto N = tiles().cols + 3, K = 31 * tiles().depth - 30;
  expect_plain_loop(5, N, K, true, true, std::int64_t{1} << 24);
}

// Many columns: a is packed by all threads together, at least 512 rows (in whole strips) at a time.
TEST_P(PackedProduct, OfManyColumnsAndManyRowsIsComputedInPieces) {
  const auto N = tiles().cols * tiles().panels + 3;
  for (const std::int64_t M : {700, 1100, 1601})
    for (const bool b_is_flipped : {false, true})
      for (const bool add : {false, true}) expect_plain_loop(M, N, 9, b_is_flipped, add, 1);
}

// 16-bit rows with k innermost: each task widens its own if only one float may be packed; else all threads widen them
// together, here in one piece or in two.
TEST_P(PackedProduct, OfSixteenBitRowsHasTheSameBitsWhoeverWidensThem) {
  for (const auto type : {DType::bfloat16, DType::float16})
    for (const std::int64_t M : {70, 1100})
      for (const auto result : {DType::float32, type}) {
        const auto N = tiles().cols * tiles().panels + 3, K = tiles().depth + 37;
        Typed a(type, random_normal(static_cast<std::size_t>(M * K), 1));
        Typed b(type, random_normal(static_cast<std::size_t>(N * K), 2));
        const auto bias = random_normal(static_cast<std::size_t>(N), 3);
        const auto product = [&](std::int64_t packed_floats) {
          return on_any_threads([&](Threads& threads) {
            Typed c(result, std::vector<float>(static_cast<std::size_t>(M * N))), y = c, sum = y;
            MatrixProduct p{M, N, K, {a.elements(), K, 1}, {b.elements(), K, 1}, c.elements()};
            p.bias = bias.data();
            p.act = Activation::gelu_tanh;
            p.y = y.elements();
            multiply_packed(threads, tiles(), p, packed_floats);
            MatrixProduct added{M, N, K, p.a, p.b, sum.elements()};
            added.add = true;
            multiply_packed(threads, tiles(), added, packed_floats);
            return joined({c.now(), y.now(), sum.now()});
          });
        };
        const auto alone = product(1);
        for (const auto rows : {600, 1200}) {
          const auto together = product(rows * (K + 32));
          EXPECT_TRUE(same_bits(alone, together)) << M << " rows of " << name_of(type) << ", " << rows << " at a time";
        }
      }
}

}  // namespace
}  // namespace tessera::kernels
