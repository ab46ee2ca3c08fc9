// What fraction of the processor's peak does attention reach, and what fraction of the memory bandwidth does decoding?
// 12 heads with 64 channels of GPT-2 124M in a fused projection, causal; only visible keys are counted.
//
//   bench_attention [threads]
#include "framework/kernels/attention.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "benchmarks/report.h"
#include "framework/kernels/machine_limits.h"

namespace tessera {
namespace {

struct AttentionShape {
  std::int64_t B, T, S, H = 12, G = 12, D = 64;
};

std::vector<float> random_values(std::int64_t size, unsigned seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> draw;
  std::vector<float> out(static_cast<std::size_t>(size));
  for (auto& v : out) v = draw(rng);
  return out;
}

/// A fused buffer [rows, group: query heads, k, v] as the projection writes it; the queries are in its last T rows.
struct Work {
  kernels::AttentionExtents e;
  std::vector<float> qkv, o, d_o, d_qkv, lse;
  std::vector<std::int32_t> first, last;
  std::vector<std::int64_t> ids;

  explicit Work(const AttentionShape& s) {
    const auto heads = s.H / s.G, group = (heads + 2) * s.D, row = s.G * group;
    e = {s.B, s.T, s.S, s.H, s.G, s.D, 1 / std::sqrt(static_cast<double>(s.D)), {}, {}, {}, {}};
    e.q = {row, 0, group, s.D};
    e.k = {row, heads * s.D, group, 0};
    e.v = {row, (heads + 1) * s.D, group, 0};
    e.o = {s.H * s.D, 0, heads * s.D, s.D};
    qkv = random_values(s.B * s.S * row, 1);
    d_o = random_values(s.B * s.T * s.H * s.D, 2);
    d_qkv.resize(qkv.size());
    o.resize(d_o.size());
    lse.resize(static_cast<std::size_t>(s.B * s.H * s.T));
    ids.resize(static_cast<std::size_t>(s.B));
    std::iota(ids.begin(), ids.end(), 0);
    for (std::int64_t i = 0; i < s.B * s.T; ++i) {
      first.push_back(0);
      last.push_back(static_cast<std::int32_t>(s.S - s.T + i % s.T));
    }
  }

  kernels::DropoutMask mask(double rate) const { return {RandomKey(1, Purpose::attention_dropout), ids, rate}; }
  void forward(kernels::Threads& threads, double rate = 0) {
    kernels::attention_forward(threads, e, {first, last}, mask(rate),
                               {.q = qkv, .k = qkv, .v = qkv, .o = o, .lse = lse});
  }
  void backward(kernels::Threads& threads, double rate = 0) {
    kernels::attention_backward(
        threads, e, {first, last}, mask(rate),
        {.q = qkv, .k = qkv, .v = qkv, .o = o, .lse = lse, .d_o = d_o, .dq = d_qkv, .dk = d_qkv, .dv = d_qkv});
  }
};

void measure(kernels::Threads& threads, const AttentionShape& s, double peak) {
  Work work(s);
  const double seen = static_cast<double>(s.B * s.H) * static_cast<double>(s.T) * static_cast<double>(s.T + 1) / 2;
  const double forward = 4 * seen * static_cast<double>(s.D), backward = 2.5 * forward;
  const Clock clock = fair_clock(threads);
  const auto line = [&](const char* what, double operations, const Timing& t) {
    const auto rate = [&](double seconds) { return operations / seconds / 1e9; };
    std::printf("  B%ld T%-5ld %-22s %8.3f ms  %7.1f GF/s (%.1f..%.1f), %3.0f %% of peak\n", static_cast<long>(s.B),
                static_cast<long>(s.T), what, t.median * 1e3, rate(t.median), rate(t.high), rate(t.low),
                100 * rate(t.median) / peak);
  };
  line("forward", forward, time([&] { work.forward(threads); }, clock));
  line("backward", backward, time([&] { work.backward(threads); }, clock));
  line("forward, dropout 0.1", forward, time([&] { work.forward(threads, 0.1); }, clock));
  line("backward, dropout 0.1", backward, time([&] { work.backward(threads, 0.1); }, clock));
}

/// Decoding one new token; limited by memory bandwidth.
void measure_decoding(kernels::Threads& threads, std::int64_t keys, double reads) {
  Work work({1, 1, keys});
  const Timing t = time([&] { work.forward(threads); }, fair_clock(threads));
  const double bytes = 2.0 * static_cast<double>(keys) * 12 * 64 * 4;
  std::printf("  one query, %5ld keys  %8.3f ms  %6.1f GB/s; memory reads at %.1f GB/s\n", static_cast<long>(keys),
              t.median * 1e3, bytes / t.median / 1e9, reads);
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  using namespace tessera;
  kernels::Threads threads(argc > 1 ? std::atoi(argv[1]) : static_cast<int>(std::thread::hardware_concurrency()));
  print_head("attention", threads.count());
  const double peak = kernels::multiply_add_rate(threads) / 1e9, reads = kernels::memory_rates(threads).read / 1e9;
  std::printf("multiply-adds from registers %.1f GF/s\n", peak);
  for (const auto& shape : {AttentionShape{4, 64, 64}, AttentionShape{4, 256, 256}, AttentionShape{1, 1024, 1024}}) {
    measure(threads, shape, peak);
  }
  for (const std::int64_t keys : {1024, 16384}) measure_decoding(threads, keys, reads);
}
