// Does a slow source slow down the step? A source that takes 20 ms for a micro-batch, a step that takes 50 ms: what a
// step waits, with 0, 1, 2 and 4 threads that read ahead; and the same with a source that needs 80 ms, which one thread
// cannot keep up with.
//
//   bench_data_loading [STEPS]     default 40
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>
#include <vector>

#include "benchmarks/report.h"
#include "framework/base/clock.h"
#include "framework/data/batch_loader.h"
#include "framework/data/no_tokens.h"

namespace tessera {
namespace {

void sleep_ms(double ms) { std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(ms)); }

class Slow final : public data::Dataset {
 public:
  explicit Slow(double ms) : ms_(ms) {}
  std::int64_t samples() const override { return 1'000'000; }
  std::int64_t seq_length() const override { return 1024; }
  void read(std::int64_t index, const SampleView& out) const override {
    sleep_ms(ms_);
    data::NoTokens(samples(), seq_length()).read(index, out);
  }

 private:
  double ms_;
};

void measure(double source_ms, double step_ms, std::int64_t workers, int steps) {
  const Slow data(source_ms);
  const data::AnyOrder order;
  data::BatchLoader loader(data, order, {1, 0, 1}, workers);
  Batch batch(1, data.seq_length());
  std::vector<double> waits;
  double longest = 0, sum = 0;
  const Stopwatch all;
  for (int i = 0; i < steps; ++i) {
    const auto wait = loader.read(i, batch);
    if (i > 0) sum += wait, longest = std::max(longest, wait);  // the first one is waited for in any case
    sleep_ms(step_ms);
  }
  std::printf(
      "source %3.0f ms, step %3.0f ms, %lld workers: step waits %8.3f ms on average, %8.3f ms at most; %.2f s in all\n",
      source_ms, step_ms, static_cast<long long>(workers), 1e3 * sum / (steps - 1), 1e3 * longest, all.seconds());
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  const auto steps = static_cast<int>(tessera::count_argument(argc, argv, 1, 40));
  tessera::print_head("How long does a step wait for data that are slow to read?", 1);
  for (const double source : {0.0, 20.0, 80.0})
    for (const std::int64_t workers : {0, 1, 2, 4}) tessera::measure(source, 50, workers, steps);
}
