// How fast is `generate` with GPT-2 124M and batch size 1? A generated token reads every weight once, so the bandwidth
// of memory, measured before and after, bounds it; reading the prompt is bounded by products, as the forward pass of
// training.
//
//   bench_generate [--dtype float32|bfloat16] [--threads N] [--prompt TOKENS] [--tokens N] [--json]
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "benchmarks/gpt2.h"
#include "benchmarks/report.h"
#include "framework/kernels/machine_limits.h"
#include "framework/model/generation.h"
#include "framework/nn/key_value_cache.h"
#include "framework/recipe/build.h"
#include "framework/training/state/model_state.h"

namespace tessera {
namespace {

struct Flags {
  std::string dtype = "float32";
  int threads = static_cast<int>(std::thread::hardware_concurrency());
  std::int64_t prompt = 512, tokens = 128;
  bool json = false;
};

struct Measured {
  double token = 0;                         ///< median seconds per generated token
  double prompt = 0, forward = 0;           ///< seconds of as many tokens
  double bytes = 0, bandwidth_seconds = 0;  ///< of the weights that a token reads, and of reading as much memory
  double disturbed = 0;                     ///< share of the time in which other programs took a processor away
};

/// Of the weights that one token reads: all but the rows of the other positions. The embedding is the output layer too.
double bytes_read(model::Model& model) {
  double bytes = 0;
  for (const auto* parameter : model.parameters())
    if (parameter->name.find("position_embeddings") == std::string::npos)
      bytes += static_cast<double>(parameter->leaf.value.elements()) *
               static_cast<double>(size_of(parameter->leaf.value.dtype()));
  return bytes;
}

Measured measure(const Flags& flags) {
  std::vector<std::string> sets = {"model_config.seq_length=" + std::to_string(flags.prompt),
                                   "dataset_config.batch_size=1"};
  if (flags.dtype == "bfloat16") sets.push_back("training_config.bf16=true");
  const auto recipe = read_gpt2(sets);
  kernels::Threads threads(flags.threads);
  const ModelToTrain made(recipe, threads);
  const auto& model = made.model;
  Arena arena;
  const RandomBatch batch(1, flags.prompt, model->vocabulary());
  const auto prompt = batch.view().tokens;

  Measured out;
  out.bytes = bytes_read(*model);
  const double before = kernels::memory_rates(threads).read;
  const double stalled = stalled_seconds(), began = seconds_on(Clock::wall);
  autograd::Tape tape(arena, threads, false);
  std::vector<double> at;
  model::generate(*model, tape, prompt.first(16), {.temperature = 0}, {flags.tokens, {}, model->vocabulary()}, 0,
                  [&](std::int32_t) { at.push_back(seconds_on(Clock::wall)); });
  std::vector<double> apart;
  for (std::size_t i = 8; i < at.size(); ++i) apart.push_back(at[i] - at[i - 1]);  // the first ones meet fresh memory
  out.token = timing_of(std::move(apart)).median;
  auto cache = model->make_cache(1, flags.prompt);
  const auto read_prompt = [&] {
    cache.rewind();
    model->next_logits(tape, prompt, flags.prompt, cache);
    tape.clear();
  };
  out.prompt = time(read_prompt, Clock::wall, 1, 3).median;
  autograd::Tape recorded(arena, threads, true);
  model::ForwardMode mode;
  mode.training = true;
  const auto forward = [&] {
    model->loss(recorded, batch.view(), mode);
    recorded.clear();
  };
  out.forward = time(forward, Clock::wall, 1, 3).median;
  out.disturbed = (stalled_seconds() - stalled) / (seconds_on(Clock::wall) - began);
  out.bandwidth_seconds = out.bytes / ((before + kernels::memory_rates(threads).read) / 2);
  return out;
}

Flags read_flags(int argc, char** argv) {
  Flags flags;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto value = [&] { return i + 1 < argc ? argv[++i] : ""; };
    if (word == "--dtype")
      flags.dtype = value();
    else if (word == "--threads")
      flags.threads = std::atoi(value());
    else if (word == "--prompt")
      flags.prompt = std::atoll(value());
    else if (word == "--tokens")
      flags.tokens = std::atoll(value());
    else if (word == "--json")
      flags.json = true;
    else
      throw std::invalid_argument("no option '" + word + "'; see the head of benchmarks/generate.cpp");
  }
  if ((flags.dtype != "float32" && flags.dtype != "bfloat16") || flags.threads < 1 || flags.prompt < 16 ||
      flags.prompt > 1024 || flags.tokens < 16 || flags.tokens > 1000)
    throw std::invalid_argument("--dtype is float32 or bfloat16, --prompt 16 to 1024, --tokens 16 to 1000");
  return flags;
}

void run_benchmark(const Flags& flags) {
  if (!flags.json) print_head("How fast is generate, GPT-2 124M, batch size 1?", flags.threads);
  const auto m = measure(flags);
  std::printf(flags.json ? "{\"dtype\": \"%s\", \"tokens_per_second\": %.2f, \"share_of_bandwidth\": %.4f, "
                           "\"prompt_tokens_per_second\": "
                           "%.2f, \"prompt_over_forward\": %.4f, \"disturbed\": %.4f}\n"
                         : "  %s: %.1f tokens/s, %.2f of the memory bandwidth; prompt %.0f tokens/s, %.2f x the "
                           "forward pass of training; "
                           "other programs ran in %.2f of the time\n",
              flags.dtype.c_str(), 1 / m.token, m.bandwidth_seconds / m.token,
              static_cast<double>(flags.prompt) / m.prompt, m.forward / m.prompt, m.disturbed);
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  try {
    tessera::run_benchmark(tessera::read_flags(argc, argv));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_generate: %s\n", error.what());
    return 1;
  }
}
