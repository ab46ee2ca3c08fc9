#include "framework/kernels/gemm_blocks.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "framework/kernels/gemm_packed.h"
#include "tests/kernels/reference.h"
#include "tests/kernels/typed.h"

namespace tessera::kernels {
namespace {

constexpr std::int64_t kib = 1 << 10;

/// {avx2}, or nothing where the machine has it not.
std::vector<Isa> isas_with_avx2() { return available_isas().size() > 1 ? std::vector{Isa::avx2} : std::vector<Isa>{}; }

TEST(Blocks, OfRowsAndPanelsFitTheCacheOfTheProcessor) {
  const std::int64_t strip_rows[] = {32, 64, 128, 192}, panels[] = {2, 4, 8, 8};
  for (int i = 0; i < 4; ++i) {
    const auto t = fitted_to(tiles_avx2(), (256 * kib) << i);
    EXPECT_EQ(t.strip_rows, strip_rows[i]) << i;
    EXPECT_EQ(t.panels, panels[i]) << i;
    EXPECT_EQ(t.depth, tiles_avx2().depth) << "the order of sums must not depend on the cache";
    EXPECT_EQ(t.narrow, tiles_avx2().cols * tiles_avx2().panels)
        << "nor must the choice between packing a or b for all tasks";
  }
}

TEST(Blocks, FollowTheSizesThatLinuxTells) {
  const auto folder = std::filesystem::path(testing::TempDir()) / ("tessera_caches" + std::to_string(::getpid()));
  const auto cache = [&](int index, const char* level, const char* type, const char* size) {
    const auto at = folder / ("index" + std::to_string(index));
    std::filesystem::create_directories(at);
    std::ofstream(at / "level") << level << "\n";
    std::ofstream(at / "type") << type << "\n";
    std::ofstream(at / "size") << size << "\n";
  };
  cache(0, "1", "Data", "48K");
  cache(1, "1", "Instruction", "64K");
  cache(2, "2", "Unified", "1M");
  cache(3, "3", "Unified", "32768K");
  const auto l2 = l2_bytes(folder.string());
  std::filesystem::remove_all(folder);
  EXPECT_EQ(l2, 1024 * kib);
  EXPECT_EQ(l2_bytes(folder.string()), 512 * kib) << "of a folder that does not exist";
}

class PanelsOfTasks : public ForEveryIsa {};
INSTANTIATE_TEST_SUITE_P(Kernels, PanelsOfTasks, testing::ValuesIn(isas_with_avx2()), name_of_parameter);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(PanelsOfTasks);

// The last block of k is shorter, the last panel narrower.
TEST_P(PanelsOfTasks, DoNotChangeBits) {
  for (const auto type : {DType::float32, DType::bfloat16})
    for (const std::int64_t K : {200, 1100})
      for (const bool flipped : {false, true}) {
        const std::int64_t M = 133, N = 230;
        Typed a(type, random_normal(static_cast<std::size_t>(M * K), 1));
        Typed b(type, random_normal(static_cast<std::size_t>(N * K), 2));
        const auto bias = random_normal(static_cast<std::size_t>(N), 3);
        const auto product = [&](const TileKernels& t) {
          return on_any_threads([&](Threads& threads) {
            const DType result = flipped ? DType::float32 : type;
            Typed c(result, std::vector<float>(static_cast<std::size_t>(M * N))), y = c;
            MatrixProduct p{M,
                            N,
                            K,
                            {a.elements(), flipped ? 1 : K, flipped ? M : 1},
                            {b.elements(), flipped ? 1 : K, flipped ? N : 1},
                            c.elements()};
            if (!flipped) {
              p.bias = bias.data();
              p.act = Activation::gelu_tanh;
              p.y = y.elements();
            }
            multiply_packed(threads, t, p);
            p.act = Activation::none;
            p.bias = nullptr;
            p.add = true;
            multiply_packed(threads, t, p);
            return joined({c.now(), y.now()});
          });
        };
        const auto expected = product(tiles_avx2());
        for (const std::int64_t panels : {1, 3, 7}) {
          auto t = tiles_avx2();
          t.narrow = t.cols * t.panels;
          t.panels = panels;
          EXPECT_TRUE(same_bits(expected, product(t)))
              << panels << " panels a task, K " << K << ", " << name_of(type) << (flipped ? ", k outermost" : "");
        }
      }
}

// More rows than columns, with k outermost in a: several tasks, the last with fewer rows; a last block of k that is
// shorter; a last panel that is narrower.
TEST_P(PanelsOfTasks, AndStripsOfTheirOwnHaveTheBitsOfStripsThatAllPackTogether) {
  for (const auto type : {DType::float32, DType::bfloat16})
    for (const std::int64_t K : {200, 1100})
      for (const bool b_is_flipped : {false, true}) {
        const std::int64_t M = 500, N = 230;
        Typed a(type, random_normal(static_cast<std::size_t>(M * K), 1));
        Typed b(type, random_normal(static_cast<std::size_t>(N * K), 2));
        const auto product = [&](std::int64_t strip_rows) {
          auto t = tiles_avx2();
          t.narrow = t.cols * t.panels;
          t.panels = 3;
          t.strip_rows = strip_rows;
          return on_any_threads([&](Threads& threads) {
            std::vector<float> c(static_cast<std::size_t>(M * N));
            MatrixProduct p{M, N, K, {a.elements(), 1, M}, {b.elements(), b_is_flipped ? 1 : K, b_is_flipped ? N : 1},
                            c};
            multiply_packed(threads, t, p);
            p.add = true;
            multiply_packed(threads, t, p);
            return c;
          });
        };
        const auto together = product(0);
        for (const std::int64_t rows : {4, 60, 192})
          EXPECT_TRUE(same_bits(together, product(rows)))
              << rows << " rows a task, K " << K << ", " << name_of(type) << (b_is_flipped ? ", b flipped" : "");
      }
}

}  // namespace
}  // namespace tessera::kernels
