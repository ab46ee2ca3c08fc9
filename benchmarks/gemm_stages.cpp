#include "benchmarks/gemm_stages.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <vector>

#include "benchmarks/report.h"
#include "framework/kernels/gemm_packed.h"
#include "framework/kernels/gemm_task.h"
#include "framework/kernels/panels_ahead.h"

namespace tessera {
namespace {

using kernels::MatrixProduct;
using kernels::TileKernels;

double operations(const MatrixProduct& p) {
  return 2.0 * static_cast<double>(p.M) * static_cast<double>(p.N) * static_cast<double>(p.K);
}

/// Operations per second of a body that does `work` of them, as a share of the peak that is measured before and after
/// each repetition; median.
template <class Body>
double share_of(const StageTimes& times, double work, Clock clock, const Body& body) {
  constexpr double long_enough = 0.002;
  constexpr std::size_t least = 5;
  body();
  const double start = seconds_on(Clock::wall);
  body();
  const int together = 1 + static_cast<int>(long_enough / (seconds_on(Clock::wall) - start));
  std::vector<double> shares;
  for (double before = times.peak(); shares.size() < least || seconds_on(Clock::wall) - start < times.seconds;) {
    const double begin = seconds_on(clock);
    for (int i = 0; i < together; ++i) body();
    const double taken = (seconds_on(clock) - begin) / together, after = times.peak();
    shares.push_back(work / taken / ((before + after) / 2));
    before = after;
  }
  return timing_of(std::move(shares)).median;
}

/// One tile again and again.
double share_of_tile(const StageTimes& times, const TileKernels& t, bool packed, std::int64_t depth,
                     const Storage& values) {
  const std::int64_t row = depth + 16, calls = 400;
  float* const at = values.floats().data();
  float *const b = at + kernels::round_up(t.rows * row, 16), *const c = b + t.cols * depth;
  const kernels::TileCall call{
      at, packed ? t.block : row, packed ? t.rows : 1, at, b, depth, nullptr, 0, c, t.cols, t.rows, t.cols};
  const double work = 2.0 * static_cast<double>(t.rows * t.cols * depth * t.elements * calls);
  return share_of(times, work, Clock::processor, [&] {
    for (std::int64_t i = 0; i < calls; ++i) t.tile(call);
  });
}

/// A product of other extents with the operands of `p`.
MatrixProduct part_of(const MatrixProduct& p, std::int64_t M, std::int64_t N, std::int64_t K) {
  MatrixProduct part = p;
  part.M = M;
  part.N = N;
  part.K = K;
  return part;
}

/// `extent` rounded down to whole units, at least one of them if there is one.
std::int64_t whole(std::int64_t extent, std::int64_t unit) { return extent < unit ? extent : extent / unit * unit; }

/// The product with its operands copied to pages of 4 KiB.
class OnSmallPages {
 public:
  explicit OnSmallPages(const MatrixProduct& p) : product_(p) {
    product_.a.elements = copy_of(memory_[0], p.a.elements);
    product_.b.elements = copy_of(memory_[1], p.b.elements);
    const auto c = copy_of(memory_[2], {p.c.at, p.c.size(), p.c.type});
    product_.c = {memory_[2].bytes().data(), c.size(), c.type};
  }
  const MatrixProduct& product() const { return product_; }

 private:
  static kernels::Elements copy_of(Storage& memory, const kernels::Elements& from) {
    memory = Storage(from.size() * size_of(from.type));
    madvise(memory.bytes().data(), memory.bytes().size(), MADV_NOHUGEPAGE);
    std::memcpy(memory.bytes().data(), from.at, memory.bytes().size());
    return {memory.bytes().data(), from.size(), from.type};
  }

  Storage memory_[3];
  MatrixProduct product_;
};

}  // namespace

void print_stages(kernels::Threads& threads, const std::string& name, const MatrixProduct& p, const StageTimes& times) {
  const TileKernels* tiles = kernels::tiles_of(p);
  if (tiles == nullptr || kernels::has_few_rows(p)) {
    std::printf("  %-14s no register tiles: OpenBLAS, or few rows\n", name.c_str());
    return;
  }
  const TileKernels& t = *tiles;
  kernels::Threads one(1);
  const std::int64_t depth = kernels::even_part(kernels::words_in(t, p.K), t.depth, t.block);
  const Storage values = random_floats((t.rows + t.cols) * (depth + 32) + t.rows * t.cols + 64, 7);
  const bool packed = p.a.along != 1;
  const auto grid = kernels::grid_of_tiles(t, p, t.tasks);
  const auto block = part_of(p, std::min(p.M, 16 * t.rows), std::min(p.N, grid.cols), depth * t.elements);
  const auto tiled = part_of(p, whole(p.M, t.rows), whole(p.N, t.cols), whole(p.K, depth * t.elements));
  const kernels::PackedOperands packed_block(one, t, block, 1), packed_product(one, t, p, t.tasks);
  const OnSmallPages small(p);
  const Clock clock = fair_clock(threads);
  const auto alone = [&](const MatrixProduct& product, const auto& body) {
    return share_of(times, operations(product), Clock::processor, body);
  };
  const auto together = [&](const MatrixProduct& product) {
    return share_of(times, operations(p), clock, [&] { kernels::multiply(threads, product); }) / threads.count();
  };
  const double share[] = {share_of_tile(times, t, packed, depth, values),
                          alone(block, [&] { packed_block.multiply(one); }),
                          alone(p, [&] { packed_product.multiply(one); }),
                          alone(tiled, [&] { kernels::multiply(one, tiled); }),
                          alone(p, [&] { kernels::multiply(one, p); }),
                          together(p),
                          together(small.product())};
  std::printf("  %-14s", name.c_str());
  for (const double part : share) std::printf("  %7.2f", part);
  std::printf("\n");
}

}  // namespace tessera
