// What can this machine do at this moment? Rates of all threads together: multiply-adds, OpenBLAS's product of [1024,
// 768] and [768, 2304] elements (single-threaded on our tiles), the bfloat16 tile from the L1 cache (0: there is none).
// suite.py measures them before and after each pair of programs.
//
//   bench_limits [--threads N] [--json]
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "benchmarks/report.h"
#include "framework/kernels/gemm_blas.h"
#include "framework/kernels/machine_limits.h"

namespace tessera {
namespace {

double blas_rate(kernels::Threads& threads) {
  constexpr std::int64_t rows = 1024, out = 2304, in = 768;
  const Storage a = random_floats(rows * in, 1), b = random_floats(out * in, 2), c = random_floats(rows * out, 3);
  const kernels::MatrixProduct product{rows, out, in, {a.floats(), in, 1}, {b.floats(), in, 1}, c.floats()};
  const auto time = tessera::time([&] { kernels::multiply_blas(threads, product); }, Clock::wall, 0.3, 5);
  return 2.0 * static_cast<double>(rows * out * in) / time.low;
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  using namespace tessera;
  int count = static_cast<int>(std::thread::hardware_concurrency());
  bool json = false;
  for (int i = 1; i < argc; ++i) {
    if (const std::string word = argv[i]; word == "--json")
      json = true;
    else if (word == "--threads" && i + 1 < argc)
      count = std::atoi(argv[++i]);
    else
      return std::fprintf(stderr, "bench_limits: no option '%s'\n", argv[i]), 2;
  }
  kernels::Threads threads(count);
  if (!json) print_head("What can this machine do at this moment?", count);
  const char* form = json ? "{\"multiply_adds\": %.0f, \"sgemm\": %.0f, \"bfloat16_tile\": %.0f}\n"
                          : "  multiply-adds %.4g/s, OpenBLAS sgemm %.4g/s, bfloat16 tile %.4g/s\n";
  std::printf(form, kernels::multiply_add_rate(threads), blas_rate(threads), kernels::pair_tile_rate(threads));
}
