// What fraction of the processor's peak do the matrix products of a linear layer reach, and how do they compare with
// OpenBLAS in fp32, called single-threaded on tiles, and with oneDNN in the same type, if there is one? Shapes of GPT-2
// 124M, random data, 10^9 operations per second; with one thread measured in processor time. The peak is that of fp32
// multiply-adds, for bfloat16 that of its register tile where there is one. "of the best": our rate over that of the
// faster library.
//
//   bench_gemm [threads] [rows] [layer, or all] [width] [float32, bfloat16 or float16]
#include "framework/kernels/gemm.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <thread>

#include "benchmarks/gemm_dnnl.h"
#include "benchmarks/report.h"
#include "framework/kernels/gemm_blas.h"
#include "framework/kernels/machine_limits.h"
#include "framework/kernels/type_conversion.h"

namespace tessera {
namespace {

struct Layer {
  const char* name;
  std::int64_t rows, in, out;
};

/// Values rounded to a type, on huge pages as in a run.
class Typed {
 public:
  Typed(kernels::Threads& threads, DType type, std::span<const float> values)
      : memory_(values.size() * size_of(type)), size_(values.size()), type_(type) {
    kernels::narrow(threads, values, elements());
  }
  kernels::MutableElements elements() const { return {memory_.bytes().data(), size_, type_}; }

 private:
  Storage memory_;
  std::size_t size_;
  DType type_;
};

/// The three products of one layer, Tessera's, OpenBLAS's and oneDNN's in alternation.
void compare(kernels::Threads& threads, const Layer& s, DType type, double peak) {
  const Storage values[] = {random_floats(s.rows * s.in, 1), random_floats(s.out * s.in, 2),
                            random_floats(s.rows * s.out, 3), random_floats(s.out, 4)};
  const auto x = values[0].floats(), w = values[1].floats(), dy = values[2].floats(), bias = values[3].floats();
  const Storage results[] = {Storage(dy.size_bytes()), Storage(x.size_bytes()), Storage(w.size_bytes())};
  const auto y = results[0].floats(), dx = results[1].floats(), dw = results[2].floats();
  const kernels::MatrixProduct blas_products[] = {
      {s.rows, s.out, s.in, {x, s.in, 1}, {w, s.in, 1}, y, false, bias.data()},
      {s.rows, s.in, s.out, {dy, s.out, 1}, {w, 1, s.in}, dx},
      {s.out, s.in, s.rows, {dy, 1, s.out}, {x, 1, s.in}, dw, true}};
  const Typed x16(threads, type, x), w16(threads, type, w), dy16(threads, type, dy), y16(threads, type, y),
      dx16(threads, type, dx);
  const kernels::MatrixProduct products[] = {
      {s.rows, s.out, s.in, {x16.elements(), s.in, 1}, {w16.elements(), s.in, 1}, y16.elements(), false, bias.data()},
      {s.rows, s.in, s.out, {dy16.elements(), s.out, 1}, {w16.elements(), 1, s.in}, dx16.elements()},
      {s.out, s.in, s.rows, {dy16.elements(), 1, s.out}, {x16.elements(), 1, s.in}, dw, true}};
  const char* names[] = {"forward", "dgrad", "wgrad"};
  const double operations = 2.0 * static_cast<double>(s.rows) * static_cast<double>(s.in) * static_cast<double>(s.out);
  const Clock clock = fair_clock(threads);
  for (int i = 0; i < 3; ++i) {
    const auto rate = [&](double seconds) { return operations / seconds / 1e9; };
    const Timing ours = time([&] { kernels::multiply(threads, products[i]); }, clock);
    const Timing blas = time([&] { kernels::multiply_blas(threads, blas_products[i]); }, clock);
    const auto by_dnnl = dnnl_product(products[i], threads.count());
    const Timing dnnl = by_dnnl ? time(by_dnnl, clock) : Timing{};
    std::printf(
        "  %-8s %5ld x %5ld x %5ld  %-8s %8.3f ms  %7.1f GF/s (%.1f..%.1f), %3.0f %% of peak;  OpenBLAS %7.1f "
        "(%.1f..%.1f);  %.2f x",
        s.name, static_cast<long>(s.rows), static_cast<long>(s.in), static_cast<long>(s.out), names[i],
        ours.median * 1e3, rate(ours.median), rate(ours.high), rate(ours.low), 100 * rate(ours.median) / peak,
        rate(blas.median), rate(blas.high), rate(blas.low), blas.median / ours.median);
    if (by_dnnl)
      std::printf(";  oneDNN %7.1f (%.1f..%.1f);  %.2f x;  %.2f of the best", rate(dnnl.median), rate(dnnl.high),
                  rate(dnnl.low), dnnl.median / ours.median, std::min(blas.median, dnnl.median) / ours.median);
    std::printf("\n");
  }
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  using namespace tessera;
  const int count = argc > 1 ? std::atoi(argv[1]) : static_cast<int>(std::thread::hardware_concurrency());
  const std::int64_t rows = argc > 2 ? std::atoll(argv[2]) : 1024;
  kernels::Threads threads(count);
  print_head("gemm: products of a linear layer, rows x in x out", count);
  const std::string only = argc > 3 ? argv[3] : "all";
  const std::int64_t width = argc > 4 ? std::atoll(argv[4]) : 768;
  const DType type = dtype_named(argc > 5 ? argv[5] : "float32");
  const double tile = type == DType::bfloat16 ? kernels::pair_tile_rate(threads) : 0;
  const double peak = (tile > 0 ? tile : kernels::multiply_add_rate(threads)) / 1e9;
  std::printf("  peak of %s: %.1f GF/s; oneDNN: %s\n", tile > 0 ? "the bfloat16 tile" : "multiply-adds", peak,
              describe_dnnl());
  for (const Layer& s :
       {Layer{"qkv", rows, width, 3 * width}, Layer{"proj", rows, width, width}, Layer{"up", rows, width, 4 * width},
        Layer{"down", rows, 4 * width, width}, Layer{"head", rows, width, width == 768 ? 50304 : 4096}})
    if (only == "all" || only == s.name) compare(threads, s, type, peak);
}
