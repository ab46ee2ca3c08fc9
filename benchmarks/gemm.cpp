// What fraction of the processor's peak do the matrix products of a linear layer reach, and how do they compare with
// OpenBLAS in fp32, called single-threaded on tiles, and with oneDNN in the same type, if there is one? Shapes of GPT-2
// 124M, random data, 10^9 operations per second; with one thread measured in processor time. The peak is that of fp32
// multiply-adds, for bfloat16 that of its register tile where there is one. "of the best": our rate over that of the
// faster library.
//
//   bench_gemm [--stages[=SECONDS]] [threads] [rows] [layer, or all] [width] [float32, bfloat16 or float16]
//
// --stages: instead, where the time of our products goes, stage by stage, SECONDS for each, by default 0.5
// (gemm_stages.h).
#include "framework/kernels/gemm.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <tuple>
#include <vector>

#include "benchmarks/gemm_dnnl.h"
#include "benchmarks/gemm_stages.h"
#include "benchmarks/report.h"
#include "framework/base/error.h"
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

constexpr const char* product_names[] = {"forward", "dgrad", "wgrad"};

/// The three products of one layer, with random operands.
class Products {
 public:
  Products(kernels::Threads& threads, const Layer& s, DType type)
      : values_{random_floats(s.rows * s.in, 1), random_floats(s.out * s.in, 2), random_floats(s.rows * s.out, 3),
                random_floats(s.out, 4)},
        results_{Storage(values_[2].bytes().size()), Storage(values_[0].bytes().size()),
                 Storage(values_[1].bytes().size())},
        typed_{{threads, type, x()},
               {threads, type, w()},
               {threads, type, dy()},
               {threads, type, results_[0].floats()},
               {threads, type, results_[1].floats()}},
        layer_(s) {}

  /// In the type of the layer; OpenBLAS has only fp32.
  std::array<kernels::MatrixProduct, 3> typed() const {
    return products(typed_[0].elements(), typed_[1].elements(), typed_[2].elements(), typed_[3].elements(),
                    typed_[4].elements());
  }
  std::array<kernels::MatrixProduct, 3> floats() const {
    return products(x(), w(), dy(), results_[0].floats(), results_[1].floats());
  }

 private:
  std::span<float> x() const { return values_[0].floats(); }
  std::span<float> w() const { return values_[1].floats(); }
  std::span<float> dy() const { return values_[2].floats(); }
  std::array<kernels::MatrixProduct, 3> products(kernels::Elements x, kernels::Elements w, kernels::Elements dy,
                                                 kernels::MutableElements y, kernels::MutableElements dx) const {
    const auto& s = layer_;
    return {{{s.rows, s.out, s.in, {x, s.in, 1}, {w, s.in, 1}, y, false, values_[3].floats().data()},
             {s.rows, s.in, s.out, {dy, s.out, 1}, {w, 1, s.in}, dx},
             {s.out, s.in, s.rows, {dy, 1, s.out}, {x, 1, s.in}, results_[2].floats(), true}}};
  }

  Storage values_[4], results_[3];
  Typed typed_[5];
  Layer layer_;
};

/// Times of bodies that ran by turns, and the median of the times of each over those of the first body in the same
/// turn: what other programs do to the machine changes within a second.
struct ByTurns {
  std::vector<Timing> times;
  std::vector<double> over_first;
};

ByTurns by_turns(const std::vector<std::function<void()>>& bodies, Clock clock) {
  constexpr double seconds = 0.4, long_enough = 0.1;
  constexpr std::size_t least = 9;
  constexpr std::chrono::milliseconds rest(10);  // threads of OpenMP use a core for some milliseconds after their work
  std::vector<std::vector<double>> taken(bodies.size()), ratios(bodies.size());
  for (const auto& body : bodies) body();
  const double start = seconds_on(Clock::wall);
  while (taken[0].size() < least || seconds_on(Clock::wall) - start < seconds * static_cast<double>(bodies.size())) {
    for (std::size_t i = 0; i < bodies.size(); ++i) {
      std::this_thread::sleep_for(rest);
      if (taken[i].empty() || taken[i].back() < long_enough) bodies[i]();  // wakes the threads
      const double begin = seconds_on(clock);
      bodies[i]();
      taken[i].push_back(seconds_on(clock) - begin);
      ratios[i].push_back(taken[i].back() / taken[0].back());
    }
  }
  ByTurns result;
  for (std::size_t i = 0; i < bodies.size(); ++i) {
    result.times.push_back(timing_of(taken[i]));
    result.over_first.push_back(timing_of(ratios[i]).median);
  }
  return result;
}

/// The three products of one layer, Tessera's, OpenBLAS's and oneDNN's by turns.
void compare(kernels::Threads& threads, const Layer& s, DType type, double peak) {
  const Products operands(threads, s, type);
  const auto products = operands.typed(), blas_products = operands.floats();
  const double operations = 2.0 * static_cast<double>(s.rows) * static_cast<double>(s.in) * static_cast<double>(s.out);
  for (std::size_t i = 0; i < products.size(); ++i) {
    std::vector<std::function<void()>> bodies = {[&] { kernels::multiply(threads, products[i]); },
                                                 [&] { kernels::multiply_blas(threads, blas_products[i]); }};
    if (auto by_dnnl = dnnl_product(products[i], threads.count())) bodies.emplace_back(std::move(by_dnnl));
    const auto found = by_turns(bodies, fair_clock(threads));
    const auto rate = [&](double seconds) { return operations / seconds / 1e9; };
    const auto& [ours, blas] = std::tie(found.times[0], found.times[1]);
    std::printf(
        "  %-8s %5ld x %5ld x %5ld  %-8s %8.3f ms  %7.1f GF/s (%.1f..%.1f), %3.0f %% of peak;  OpenBLAS %7.1f "
        "(%.1f..%.1f);  %.2f x",
        s.name, static_cast<long>(s.rows), static_cast<long>(s.in), static_cast<long>(s.out), product_names[i],
        ours.median * 1e3, rate(ours.median), rate(ours.high), rate(ours.low), 100 * rate(ours.median) / peak,
        rate(blas.median), rate(blas.high), rate(blas.low), found.over_first[1]);
    if (bodies.size() > 2) {
      const auto& dnnl = found.times[2];
      std::printf(";  oneDNN %7.1f (%.1f..%.1f);  %.2f x;  %.2f of the best", rate(dnnl.median), rate(dnnl.high),
                  rate(dnnl.low), found.over_first[2], std::min(found.over_first[1], found.over_first[2]));
    }
    std::printf("\n");
  }
}

std::array<Layer, 5> layers_of(std::int64_t rows, std::int64_t width) {
  return {{{"qkv", rows, width, 3 * width},
           {"proj", rows, width, width},
           {"up", rows, width, 4 * width},
           {"down", rows, 4 * width, width},
           {"head", rows, width, width == 768 ? 50304 : 4096}}};
}

DType type_argument(const char* name) {
  for (const auto type : {DType::float32, DType::bfloat16, DType::float16})
    if (name == name_of(type)) return type;
  refuse_argument(name, "float32, bfloat16 or float16");
}

/// Of "--stages" or "--stages=SECONDS".
double seconds_of(const char* word, double otherwise) {
  const std::string_view number = std::string_view(word).substr(std::string_view("--stages").size());
  if (number.empty()) return otherwise;
  double seconds = 0;
  const auto [end, failed] = std::from_chars(number.data() + 1, number.data() + number.size(), seconds);
  if (number.front() != '=' || failed != std::errc() || end != number.data() + number.size() || !(seconds > 0))
    refuse_argument(word, "--stages, or --stages=SECONDS with a number above 0");
  return seconds;
}

void print_layer(kernels::Threads& threads, const Layer& s, DType type, const StageTimes& times) {
  const Products operands(threads, s, type);
  const auto products = operands.typed();
  for (std::size_t i = 0; i < products.size(); ++i)
    print_stages(threads, text(s.name, " ", product_names[i]), products[i], times);
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  using namespace tessera;
  const bool stages = argc > 1 && std::string_view(argv[1]).starts_with("--stages");
  StageTimes times;
  if (stages) times.seconds = seconds_of(argv[1], times.seconds);
  if (stages) --argc, ++argv;
  const int count = threads_argument(argc, argv, 1);
  const auto rows = count_argument(argc, argv, 2, 1024), width = count_argument(argc, argv, 4, 768);
  const std::string only = argc > 3 ? argv[3] : "all";
  const auto layers = layers_of(rows, width);
  if (only != "all" && std::none_of(layers.begin(), layers.end(), [&](const Layer& s) { return only == s.name; }))
    refuse_argument(argv[3], "qkv, proj, up, down, head or all");
  const DType type = type_argument(argc > 5 ? argv[5] : "float32");
  if (argc > 6) refuse_argument(argv[6], "no more arguments; --stages comes first");
  kernels::Threads threads(count);
  print_head("gemm: products of a linear layer, rows x in x out", count);
  kernels::Threads one(1);
  kernels::Threads& measured = stages ? one : threads;
  const double tile = type == DType::bfloat16 ? kernels::pair_tile_rate(measured) : 0;
  const double peak = (tile > 0 ? tile : kernels::multiply_add_rate(measured)) / 1e9;
  times.peak = [&] {
    constexpr double seconds = 0.002;
    return tile > 0 ? kernels::pair_tile_rate(one, seconds) : kernels::multiply_add_rate(one, seconds);
  };
  std::printf("  peak of %s: %.1f GF/s; oneDNN: %s\n", tile > 0 ? "the bfloat16 tile" : "multiply-adds", peak,
              describe_dnnl());
  if (stages) std::printf("  share of peak        tile    block   memory  packing    edges  threads    pages\n");
  for (const Layer& s : layers)
    if (only == "all" || only == s.name)
      stages ? print_layer(threads, s, type, times) : compare(threads, s, type, peak);
}
