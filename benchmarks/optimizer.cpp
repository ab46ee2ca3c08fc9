// What fraction of the memory bandwidth does an AdamW update of 124.5 million parameters reach? It reads 16 and writes
// 12 bytes per parameter. How much longer does one take whose blocks are copied first (resilience::UndoLog), and whose
// pieces are checked by checksums (resilience::StateSums)? Also the gradient norm, which reads 4.
//
//   bench_optimizer [threads] [millions of parameters]
#include "framework/optim/optimizer.h"

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "benchmarks/report.h"
#include "framework/kernels/machine_limits.h"
#include "framework/kernels/vector.h"
#include "framework/resilience/state_sums.h"
#include "framework/resilience/undo_log.h"
#include "framework/tensor/arena.h"

int main(int argc, char** argv) {
  using namespace tessera;
  const int count = threads_argument(argc, argv, 1);
  const auto size = static_cast<std::size_t>(1e6 * (argc > 2 ? std::atof(argv[2]) : 124.5)) / 64 * 64;
  kernels::Threads threads(count);
  print_head("optimizer: AdamW, gradient norm", count);
  const kernels::MemoryRates limits = kernels::memory_rates(threads);
  std::printf("  memory: %.1f GB/s read, %.1f GB/s update\n", limits.read / 1e9, limits.update / 1e9);
  std::vector<float> p(size), grad(size), m(size), v(size);
  for (std::size_t i = 0; i < size; ++i) {
    p[i] = static_cast<float>(i % 1013) * 1e-3F;
    grad[i] = static_cast<float>(i % 997) * 1e-4F - 0.05F;
    m[i] = grad[i] * 0.3F;
    v[i] = grad[i] * grad[i];
  }
  const kernels::AdamWFactors factors{1e-4, 0.9, 0.95, 1e-8, 0.1, 0.7, 0.5, 0.4};
  constexpr std::size_t tile = std::size_t{1} << 15;
  const auto show = [&](const char* what, const Timing& t, double bytes, double limit) {
    const double rate = bytes * static_cast<double>(size) / t.median / 1e9;
    std::printf("  %-9s %7.2f ms (%.2f..%.2f), %5.1f GB/s, %3.0f %% of the limit\n", what, t.median * 1e3, t.low * 1e3,
                t.high * 1e3, rate, 100 * rate / limit);
  };
  show("AdamW",
       time(
           [&] {
             threads.parallel_for(size, tile, [&](std::size_t first, std::size_t last) {
               const auto part = [&](std::vector<float>& of) { return std::span(of).subspan(first, last - first); };
               kernels::adamw_update(factors, part(p), part(grad), part(m), part(v));
             });
           },
           fair_clock(threads), 1.0),
       28, limits.update / 1e9);
  options::Value recipe;
  recipe.set("optimizer_config.optimizer_type", options::Value::of("adamw", {"bench", 0, "", 1}));
  options::Report report;
  options::Group group(recipe, "optimizer_config", report);
  const auto rule = optim::optimizers().read(group).make();
  const auto pieces = (size + tile - 1) / tile;
  const resilience::UndoLog::Extents extents{pieces, 2, 0};
  Storage memory(resilience::UndoLog::bytes(extents));
  resilience::UndoLog undo(memory.bytes(), extents);
  const auto scalars = rule->prepared({.step = 7, .lr = 1e-4, .clip = 0.7, .weight_decay = 0.1});
  const auto block = [&](std::size_t piece) {
    const auto first = piece * tile, length = std::min(tile, size - first);
    const auto part = [&](std::vector<float>& of) { return std::span(of).subspan(first, length); };
    return optim::Block{part(p), part(grad), {part(m), part(v)}};
  };
  resilience::StateSums sums(pieces);
  const auto kept = [&](bool checks) {
    undo.begin();
    std::atomic<std::size_t> next = 0;
    threads.parallel_for(static_cast<std::size_t>(count), 1, [&](std::size_t writer, std::size_t) {
      for (auto i = next++; i < pieces; i = next++)
        undo.update(i, block(i), static_cast<int>(writer),
                    [&](const optim::Block& rest, const kernels::BlockUndo& copies) {
                      kernels::UpdateSums made;
                      kernels::BlockUndo undo_and_sums = copies;
                      if (checks) undo_and_sums.sums = &made;
                      rule->update_undoable(scalars, rest, undo_and_sums);
                      if (!checks) return;
                      sums.note(sums.compare(i, {made.weights_before, made.state_before}, true));
                      sums.keep(i, {made.weights_after, made.state_after});
                    });
    });
  };
  const auto by_rule = [&] {
    threads.parallel_for(pieces, 1, [&](std::size_t i, std::size_t) { rule->update(scalars, block(i)); });
  };
  const auto limit = limits.update / 1e9;
  for (int again = 0; again < 3; ++again) {  // in turn: the machine may not be quiet
    show("by rule", time(by_rule, fair_clock(threads), 1.0), 28, limit);
    show("with undo", time([&] { kept(false); }, fair_clock(threads), 1.0), 28, limit);
    for (std::size_t i = 0; i < pieces; ++i) sums.keep(i, resilience::StateSums::of(block(i)));
    show("and sums", time([&] { kept(true); }, fair_clock(threads), 1.0), 28, limit);
  }
  if (sums.noted() != resilience::Damage::none) return 1;
  double sum = 0;
  show("norm", time([&] { sum += kernels::sum_of_squares(threads, grad); }, fair_clock(threads), 0.5), 4,
       limits.read / 1e9);
  return sum > 0 ? 0 : 1;
}
