// What fraction of the memory bandwidth do the operations between matrix products reach? Shapes of GPT-2 124M with
// batch size 4 and 256 tokens; each operand is counted as read once and each result as written once.
//
//   bench_elementwise [threads]
#include <cstdio>
#include <numeric>
#include <random>
#include <vector>

#include "benchmarks/report.h"
#include "framework/kernels/activation.h"
#include "framework/kernels/cross_entropy.h"
#include "framework/kernels/dropout.h"
#include "framework/kernels/embedding.h"
#include "framework/kernels/machine_limits.h"
#include "framework/kernels/norm.h"
#include "framework/kernels/rotary.h"

namespace tessera {
namespace {

constexpr std::int64_t rows = 1024, width = 768, inner = 3072, vocabulary = 50304;

std::vector<float> random_values(std::int64_t size, unsigned seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> draw;
  std::vector<float> out(static_cast<std::size_t>(size));
  for (auto& v : out) v = draw(rng);
  return out;
}

/// Prints one line per operation.
struct Printer {
  kernels::Threads& threads;
  double triad;

  template <class Body>
  void operator()(const char* what, std::int64_t floats_moved, const Body& body) const {
    const Timing t = time(body, fair_clock(threads));
    const auto rate = [&](double seconds) { return 4 * static_cast<double>(floats_moved) / seconds / 1e9; };
    std::printf("  %-34s %8.3f ms  %6.1f GB/s (%.1f..%.1f), %3.0f %% of the triad's\n", what, t.median * 1e3,
                rate(t.median), rate(t.high), rate(t.low), 100 * rate(t.median) / triad);
  }
};

void norms(const Printer& line, kernels::Threads& threads) {
  const auto x = random_values(rows * width, 1), dy = random_values(rows * width, 2), gain = random_values(width, 3);
  std::vector<float> y(x.size()), mean(rows), inv(rows), dx(x.size()), dgain(width), dbias(width);
  line("layernorm", 2 * rows * width, [&] {
    kernels::layernorm_forward(
        threads,
        {.x = x, .gain = gain, .bias = gain, .eps = 1e-5, .gain_offset = 0, .y = y, .mean = mean, .inv_std = inv});
  });
  line("layernorm backward", 3 * rows * width, [&] {
    kernels::layernorm_backward(threads, {.dy = dy,
                                          .x = x,
                                          .gain = gain,
                                          .gain_offset = 0,
                                          .mean = mean,
                                          .inv_std = inv,
                                          .dx = dx,
                                          .add = false,
                                          .dgain = dgain,
                                          .dbias = dbias});
  });
  line("rmsnorm", 2 * rows * width, [&] {
    kernels::rmsnorm_forward(threads, {.x = x, .gain = gain, .eps = 1e-5, .gain_offset = 0, .y = y, .inv_rms = inv});
  });
  line("rmsnorm backward", 3 * rows * width, [&] {
    kernels::rmsnorm_backward(
        threads,
        {.dy = dy, .x = x, .gain = gain, .gain_offset = 0, .inv_rms = inv, .dx = dx, .add = false, .dgain = dgain});
  });
}

void activations(const Printer& line, kernels::Threads& threads) {
  const auto x = random_values(rows * inner, 1), dy = random_values(rows * inner, 2);
  std::vector<float> y(x.size()), dx(x.size());
  const auto size = rows * inner;
  line("gelu_tanh", 2 * size, [&] { kernels::activation_forward(threads, kernels::Activation::gelu_tanh, x, y); });
  line("gelu_tanh backward", 3 * size,
       [&] { kernels::activation_backward(threads, kernels::Activation::gelu_tanh, dy, x, dx, false); });
  line("gelu_erf", 2 * size, [&] { kernels::activation_forward(threads, kernels::Activation::gelu_erf, x, y); });
  line("gelu_erf backward", 3 * size,
       [&] { kernels::activation_backward(threads, kernels::Activation::gelu_erf, dy, x, dx, false); });
  const std::span<const float> half = std::span<const float>(dy).first(dy.size() / 2);
  line("swiglu", 3 * size / 2, [&] {
    kernels::gated_forward(threads, kernels::Activation::silu, rows, inner / 2, x, std::span(y).first(y.size() / 2));
  });
  line("swiglu backward", 5 * size / 2,
       [&] { kernels::gated_backward(threads, kernels::Activation::silu, rows, inner / 2, half, x, dx, false); });
}

void others(const Printer& line, kernels::Threads& threads) {
  const auto size = rows * width;
  const auto x = random_values(size, 1), residual = random_values(size, 2);
  std::vector<float> y(x.size());
  const std::vector<std::int64_t> ids = {1, 2, 3, 4};
  const kernels::DropoutMask mask{RandomKey(1, Purpose::hidden_dropout), ids, 0.1};
  line("dropout and residual", 3 * size, [&] { kernels::dropout_add_forward(threads, mask, x, residual, y); });
  line("residual alone", 3 * size, [&] { kernels::dropout_add_forward(threads, {}, x, residual, y); });
  std::vector<std::int64_t> heads;
  for (std::int64_t h = 0; h < 12; ++h) heads.push_back(h * 64);
  std::vector<std::int32_t> positions(rows);
  std::iota(positions.begin(), positions.end(), 0);
  const auto table = random_values(rows * 32, 3);
  line("rotary, halves", 2 * size, [&] {
    kernels::rotary(threads, {rows, width, 64, kernels::RotaryLayout::half}, heads, positions, table, table, false, y);
  });
  line("rotary, neighbours", 2 * size, [&] {
    kernels::rotary(threads, {rows, width, 64, kernels::RotaryLayout::interleaved}, heads, positions, table, table,
                    false, y);
  });
  std::vector<std::int32_t> tokens(rows);
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<std::int32_t>(i * 7919 % vocabulary);
  auto big = random_values(vocabulary * width, 4);
  line("embedding", 2 * size, [&] {
    kernels::embedding_forward(threads, tokens, Tensor(std::span<float>(big), {vocabulary, width}), y, false);
  });
  line("embedding backward", 3 * size, [&] { kernels::embedding_backward(threads, width, tokens, x, big); });
}

void losses(const Printer& line, kernels::Threads& threads) {
  auto logits = random_values(rows * vocabulary, 1);
  std::vector<std::int32_t> labels(rows);
  for (std::size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<std::int32_t>(i * 7919 % vocabulary);
  std::vector<float> loss(rows);
  line("cross-entropy, loss alone", rows * vocabulary,
       [&] { kernels::cross_entropy(threads, vocabulary, logits, labels, {}, loss, false); });
  line("cross-entropy with the gradient", 2 * rows * vocabulary,
       [&] { kernels::cross_entropy(threads, vocabulary, logits, labels, {}, loss, true); });
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  using namespace tessera;
  kernels::Threads threads(threads_argument(argc, argv, 1));
  print_head("elementwise", threads.count());
  const kernels::MemoryRates limits = kernels::memory_rates(threads);
  std::printf("memory: read %.1f GB/s, triad %.1f GB/s\n", limits.read / 1e9, limits.triad / 1e9);
  const Printer line{threads, limits.triad / 1e9};
  norms(line, threads);
  activations(line, threads);
  others(line, threads);
  losses(line, threads);
}
