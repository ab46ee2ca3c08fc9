// What fraction of the processor's peak does attention reach, and what fraction of the memory bandwidth does decoding?
// 12 heads with 64 channels of GPT-2 124M in a fused projection, causal; only visible keys are counted. Each shape in
// float32 and with all operands in bfloat16 and float16, alternating.
//
//   bench_attention [threads]
#include "framework/kernels/attention.h"

#include <array>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <random>
#include <vector>

#include "benchmarks/report.h"
#include "framework/kernels/machine_limits.h"
#include "framework/kernels/type_conversion.h"

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

/// Values of one operand or result, in any type.
struct Values {
  std::vector<std::byte> bytes;
  std::size_t count;
  DType type;

  Values(std::size_t size, DType of) : bytes(size * size_of(of)), count(size), type(of) {}
  Values(std::span<const float> from, DType of) : Values(from.size(), of) { kernels::narrow_range(from, all()); }
  kernels::MutableElements all() { return {bytes.data(), count, type}; }
};

/// A fused buffer [rows, group: query heads, k, v] as the projection writes it; the queries are in its last T rows.
struct Work {
  kernels::AttentionExtents e;
  Values qkv, o, d_o, d_qkv;
  std::vector<float> lse;
  std::vector<std::int32_t> first, last;
  std::vector<std::int64_t> ids;

  Work(const AttentionShape& s, DType type)
      : qkv(random_values(s.B * s.S * (s.H + 2 * s.G) * s.D, 1), type),
        o(static_cast<std::size_t>(s.B * s.T * s.H * s.D), type),
        d_o(random_values(s.B * s.T * s.H * s.D, 2), type),
        d_qkv(qkv.count, type) {
    const auto heads = s.H / s.G, group = (heads + 2) * s.D, row = s.G * group;
    e = {s.B, s.T, s.S, s.H, s.G, s.D, 1 / std::sqrt(static_cast<double>(s.D)), {}, {}, {}, {}};
    e.q = {row, 0, group, s.D};
    e.k = {row, heads * s.D, group, 0};
    e.v = {row, (heads + 1) * s.D, group, 0};
    e.o = {s.H * s.D, 0, heads * s.D, s.D};
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
                               {.q = qkv.all(), .k = qkv.all(), .v = qkv.all(), .o = o.all(), .lse = lse});
  }
  void backward(kernels::Threads& threads, double rate = 0) {
    kernels::attention_backward(threads, e, {first, last}, mask(rate),
                                {.q = qkv.all(),
                                 .k = qkv.all(),
                                 .v = qkv.all(),
                                 .o = o.all(),
                                 .lse = lse,
                                 .d_o = d_o.all(),
                                 .dq = d_qkv.all(),
                                 .dk = d_qkv.all(),
                                 .dv = d_qkv.all()});
  }
};

/// Times `body` for each of `works` in turn, so that all of them meet the same disturbances.
template <class Body>
std::vector<Timing> alternating(std::vector<Work>& works, const Clock clock, const Body& body) {
  std::vector<std::vector<double>> taken(works.size());
  const double start = seconds_on(Clock::wall);
  for (int round = 0; round < 7 || seconds_on(Clock::wall) - start < 0.6; ++round) {
    for (std::size_t i = 0; i < works.size(); ++i) {
      const double begin = seconds_on(clock);
      body(works[i]);
      if (round >= 2) taken[i].push_back(seconds_on(clock) - begin);  // the first two warm up
    }
  }
  std::vector<Timing> timings;
  for (auto& one : taken) timings.push_back(timing_of(std::move(one)));
  return timings;
}

void measure(kernels::Threads& threads, const AttentionShape& s, double peak) {
  const std::array types{DType::float32, DType::bfloat16, DType::float16};
  std::vector<Work> works;
  for (const auto type : types) works.emplace_back(s, type);
  const double seen = static_cast<double>(s.B * s.H) * static_cast<double>(s.T) * static_cast<double>(s.T + 1) / 2;
  const double forward = 4 * seen * static_cast<double>(s.D), backward = 2.5 * forward;
  const auto lines = [&](const char* what, double operations, const auto& body) {
    const auto timings = alternating(works, fair_clock(threads), body);
    for (std::size_t i = 0; i < types.size(); ++i) {
      const auto& t = timings[i];
      const auto rate = [&](double seconds) { return operations / seconds / 1e9; };
      std::printf(
          "  B%ld T%-5ld %-22s %-9s %8.3f ms  %7.1f GF/s (%.1f..%.1f), %3.0f %% of peak, %.2f of float32's speed\n",
          static_cast<long>(s.B), static_cast<long>(s.T), what, name_of(types[i]).data(), t.median * 1e3,
          rate(t.median), rate(t.high), rate(t.low), 100 * rate(t.median) / peak, timings[0].median / t.median);
    }
  };
  lines("forward", forward, [&](Work& work) { work.forward(threads); });
  lines("backward", backward, [&](Work& work) { work.backward(threads); });
  lines("forward, dropout 0.1", forward, [&](Work& work) { work.forward(threads, 0.1); });
  lines("backward, dropout 0.1", backward, [&](Work& work) { work.backward(threads, 0.1); });
}

/// Decoding one new token; limited by memory bandwidth.
void measure_decoding(kernels::Threads& threads, std::int64_t keys, double reads) {
  Work work({1, 1, keys}, DType::float32);
  const Timing t = time([&] { work.forward(threads); }, fair_clock(threads));
  const double bytes = 2.0 * static_cast<double>(keys) * 12 * 64 * 4;
  std::printf("  one query, %5ld keys  %8.3f ms  %6.1f GB/s; memory reads at %.1f GB/s\n", static_cast<long>(keys),
              t.median * 1e3, bytes / t.median / 1e9, reads);
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  using namespace tessera;
  kernels::Threads threads(threads_argument(argc, argv, 1));
  print_head("attention", threads.count());
  const double peak = kernels::multiply_add_rate(threads) / 1e9, reads = kernels::memory_rates(threads).read / 1e9;
  std::printf("multiply-adds from registers %.1f GF/s\n", peak);
  for (const auto& shape : {AttentionShape{4, 64, 64}, AttentionShape{4, 256, 256}, AttentionShape{1, 1024, 1024}}) {
    measure(threads, shape, peak);
  }
  for (const std::int64_t keys : {1024, 16384}) measure_decoding(threads, keys, reads);
}
