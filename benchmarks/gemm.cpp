// What fraction of the processor's peak do the matrix products of a linear layer reach, and how do they compare with
// OpenBLAS in fp32, called single-threaded on tiles? Shapes of GPT-2 124M, random data, 10^9 operations per second;
// with one thread measured in processor time. The peak is that of fp32 multiply-adds.
//
//   bench_gemm [threads] [rows] [layer, or all] [width] [float32, bfloat16 or float16]
#include "framework/kernels/gemm.h"

#include <cstdio>
#include <cstdlib>
#include <new>
#include <random>
#include <string>
#include <thread>
#include <vector>

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

std::vector<float> random_values(std::int64_t size, unsigned seed) {
  std::mt19937 rng(seed);
  std::uniform_real_distribution<float> draw(-1, 1);
  std::vector<float> out(static_cast<std::size_t>(size));
  for (auto& v : out) v = draw(rng);
  return out;
}

/// Values rounded to a type.
class Typed {
 public:
  Typed(kernels::Threads& threads, DType type, const std::vector<float>& values)
      : memory_(new (std::align_val_t(64)) std::byte[values.size() * size_of(type)]),
        size_(values.size()),
        type_(type) {
    kernels::narrow(threads, values, elements());
  }
  ~Typed() { ::operator delete[](memory_, std::align_val_t(64)); }
  Typed(const Typed&) = delete;
  Typed& operator=(const Typed&) = delete;
  kernels::MutableElements elements() const { return {memory_, size_, type_}; }

 private:
  std::byte* memory_;
  std::size_t size_;
  DType type_;
};

/// The three products of one layer, Tessera's and OpenBLAS's in alternation.
void compare(kernels::Threads& threads, const Layer& s, DType type, double peak) {
  const auto x = random_values(s.rows * s.in, 1), w = random_values(s.out * s.in, 2),
             dy = random_values(s.rows * s.out, 3);
  const auto bias = random_values(s.out, 4);
  std::vector<float> y(dy.size()), dx(x.size()), dw(w.size());
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
    std::printf(
        "  %-8s %5ld x %5ld x %5ld  %-8s %8.3f ms  %7.1f GF/s (%.1f..%.1f), %3.0f %% of peak;  OpenBLAS %7.1f "
        "(%.1f..%.1f);  %.2f x\n",
        s.name, static_cast<long>(s.rows), static_cast<long>(s.in), static_cast<long>(s.out), names[i],
        ours.median * 1e3, rate(ours.median), rate(ours.high), rate(ours.low), 100 * rate(ours.median) / peak,
        rate(blas.median), rate(blas.high), rate(blas.low), blas.median / ours.median);
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
  const double peak = kernels::multiply_add_rate(threads) / 1e9;
  std::printf("  peak of multiply-adds: %.1f GF/s\n", peak);
  const std::string only = argc > 3 ? argv[3] : "all";
  const std::int64_t width = argc > 4 ? std::atoll(argv[4]) : 768;
  const DType type = dtype_named(argc > 5 ? argv[5] : "float32");
  for (const Layer& s :
       {Layer{"qkv", rows, width, 3 * width}, Layer{"proj", rows, width, width}, Layer{"up", rows, width, 4 * width},
        Layer{"down", rows, 4 * width, width}, Layer{"head", rows, width, width == 768 ? 50304 : 4096}})
    if (only == "all" || only == s.name) compare(threads, s, type, peak);
}
