// How long does a complete training step take: forward, loss, backward, gradient clipping, AdamW?
//
//   bench_train_step [RECIPE] [--set group.key=value ...] [--threads N] [--seconds S] [--warm-up N] [--least N]
//                    [--json]
//
// Runs --warm-up steps (2) that are not counted, then steps for --seconds, at least --least (3). Without a recipe:
// GPT-2 124M with three shapes. One batch of random tokens is repeated, so that the loss must fall. With --json: one
// line of JSON for one shape, which against_torch.py reads.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "benchmarks/gpt2.h"
#include "benchmarks/report.h"
#include "framework/base/clock.h"
#include "framework/base/error.h"
#include "framework/kernels/vector.h"
#include "framework/optim/clipping.h"
#include "framework/recipe/build.h"
#include "framework/training/step/gradient_sync.h"

namespace tessera {
namespace {

struct Flags {
  std::string recipe;
  std::vector<std::string> sets;
  int threads = 2, warm_up = 2, least = 3;
  double seconds = 20;
  bool json = false;
};

struct Shape {
  int samples, length;
};

struct Measured {
  Repetitions steps;
  double first_loss = 0, last_loss = 0, flops = 0;
  std::int64_t tokens = 0;
};

Measured measure(const recipe::Recipe& recipe, const Flags& flags) {
  kernels::Threads threads(flags.threads);
  ModelToTrain made(recipe, threads);
  auto& [model, optimizer, state] = made;
  const parallel::ProcessGroups alone;
  training::ModelGradientSync sync(alone, state, threads, {});
  Arena arena;
  autograd::Tape tape(arena, threads, true);
  const RandomBatch batch(recipe.batch.batch_size, recipe.size.seq_length, model->vocabulary());
  Measured out;
  out.tokens = recipe.batch.batch_size * recipe.size.seq_length;
  out.flops = model->flops(recipe.batch.batch_size, recipe.size.seq_length);
  std::int64_t number = 0;
  const auto step = [&, &model = model, &state = state] {
    state.clear_gradients();
    model::ForwardMode mode;
    mode.training = true;
    mode.objective = &model::mean_cross_entropy();
    const auto total = model->loss(tape, batch.view(), mode).total;
    tape.backward();
    tape.clear();
    sync.finish();
    optim::StepScalars scalars;
    scalars.step = ++number;
    scalars.lr = 1e-4;
    scalars.weight_decay = 0.1;
    scalars.clip = optim::clip_coefficient(std::sqrt(kernels::sum_of_squares(threads, state.gradients())), 1.0);
    state.update(threads, scalars);
    out.last_loss = total.sum / total.count;
    if (number == 1) out.first_loss = out.last_loss;
  };
  out.steps = repeat(step, flags.seconds, flags.least, flags.warm_up);
  return out;
}

double peak_megabytes() { return static_cast<double>(peak_resident_bytes()) / (1 << 20); }

void print(const recipe::Recipe& recipe, const Flags& flags, const Measured& m) {
  const auto batch = static_cast<long>(recipe.batch.batch_size), length = static_cast<long>(recipe.size.seq_length);
  const Timing& wall = m.steps.wall;
  if (flags.json) {
    std::printf(
        "{\"who\": \"tessera\", \"batch\": %ld, \"seq\": %ld, \"threads\": %d, \"min_s\": %.5f, \"median_s\": %.5f, "
        "\"cpu_min_s\": %.5f, \"model_flops\": %.0f, "
        "\"peak_rss_mb\": %.0f, \"loss_first\": %.4f, \"loss_last\": %.4f, \"clean\": %d, \"steps\": %d}\n",
        batch, length, flags.threads, wall.low, wall.median, m.steps.processor.low, m.flops, peak_megabytes(),
        m.first_loss, m.last_loss, m.steps.clean, m.steps.total);
    return;
  }
  std::printf(
      "B%ld T%-5ld median %8.1f ms  (10th %.1f, 90th %.1f, %d steps, %d undisturbed)  %7.1f tokens/s  %6.1f model "
      "GFLOP/s  %5.0f MB  "
      "loss %.3f -> %.3f\n",
      batch, length, 1e3 * wall.median, 1e3 * wall.low, 1e3 * wall.high, m.steps.total, m.steps.clean,
      static_cast<double>(m.tokens) / wall.median, 1e-9 * m.flops / wall.median, peak_megabytes(), m.first_loss,
      m.last_loss);
}

/// `file`: a recipe; empty: GPT-2 124M.
void one(const std::string& file, const std::vector<std::string>& sets, const Flags& flags) {
  const auto recipe = file.empty() ? read_gpt2(sets) : recipe::read_recipe(file, sets, recipe::Registries{});
  print(recipe, flags, measure(recipe, flags));
  std::fflush(stdout);
}

/// Runs each shape in a separate process, so that its peak memory can be reported.
void in_own_process(const std::function<void()>& work) {
  std::fflush(stdout);
  const auto child = fork();
  if (child == 0) {
    work();
    std::_Exit(0);
  }
  waitpid(child, nullptr, 0);
}

Flags read_flags(int argc, char** argv) {
  Flags flags;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto value = [&] { return i + 1 < argc ? argv[++i] : ""; };
    if (word == "--set")
      flags.sets.push_back(value());
    else if (word == "--threads")
      flags.threads = std::atoi(value());
    else if (word == "--warm-up")
      flags.warm_up = std::atoi(value());
    else if (word == "--least")
      flags.least = std::atoi(value());
    else if (word == "--seconds")
      flags.seconds = std::atof(value());
    else if (word == "--json")
      flags.json = true;
    else if (word.starts_with("--"))
      throw ConfigError(text("no option '", word, "'; see the head of benchmarks/train_step.cpp"));
    else
      flags.recipe = word;
  }
  return flags;
}

/// Whether the samples or their length are given, so that the three usual shapes do not apply.
bool give_shape(const std::vector<std::string>& sets) {
  return std::any_of(sets.begin(), sets.end(), [](const std::string& set) {
    return set.starts_with("dataset_config.batch_size=") || set.starts_with("model_config.seq_length=");
  });
}

int run_benchmark(int argc, char** argv) {
  const auto flags = read_flags(argc, argv);
  if (!flags.json) print_head("How long does one training step take?", flags.threads);
  if (!flags.recipe.empty() || flags.json || give_shape(flags.sets)) {
    one(flags.recipe, flags.sets, flags);
    return 0;
  }
  for (const auto [samples, length] : {Shape{4, 64}, Shape{4, 256}, Shape{1, 1024}})
    in_own_process([&, samples = samples, length = length] {
      auto sets = flags.sets;
      sets.push_back("dataset_config.batch_size=" + std::to_string(samples));
      sets.push_back("model_config.seq_length=" + std::to_string(length));
      one("", sets, flags);
    });
  return 0;
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  try {
    return tessera::run_benchmark(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
