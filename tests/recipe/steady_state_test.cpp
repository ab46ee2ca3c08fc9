// A training step in steady state takes nothing from the heap: every call of operator new in this program is counted.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "framework/log/log.h"
#include "framework/options/yaml.h"
#include "framework/recipe/build.h"
#include "framework/reporting/run_log.h"
#include "framework/training/guards/straggler_watch.h"
#include "framework/training/step/step.h"
#include "tests/console_file.h"
#include "tests/own_folder.h"

namespace {
std::atomic<std::int64_t> allocations = 0;

void* counted(std::size_t bytes) {
  ++allocations;
  if (void* at = std::malloc(bytes == 0 ? 1 : bytes)) return at;
  throw std::bad_alloc();
}
}  // namespace

void* operator new(std::size_t bytes) { return counted(bytes); }
void* operator new[](std::size_t bytes) { return counted(bytes); }
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return counted(bytes); }
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept { return counted(bytes); }
void operator delete(void* at) noexcept { std::free(at); }
void operator delete[](void* at) noexcept { std::free(at); }
void operator delete(void* at, std::size_t) noexcept { std::free(at); }
void operator delete[](void* at, std::size_t) noexcept { std::free(at); }

namespace tessera::recipe {
namespace {

class SteadyState : public InOwnFolder {
 protected:
  training::TrainingSetup setup(const std::string& model, int workers = 2) {
    write("run.yaml",
          "training_config: {training_iters: 100, eval_interval: 10, eval_iters: 2}\n"
          "model_config: {num_layers: 2, hidden_size: 32, num_attention_heads: 4, seq_length: 24, vocab_size: 64, " +
              model +
              "}\n"
              "optimizer_config: {learning_rate: 1e-3}\n"
              "dataset_config: {dataset_type: mock, batch_size: 3, micro_batch_num: 2, num_workers: " +
              std::to_string(workers) + "}\n");
    return build(read_recipe("run.yaml", {}, Registries{}));
  }

  static std::int64_t allocations_of(const std::function<void()>& work) {
    const auto before = allocations.load();
    work();
    return allocations.load() - before;
  }

  static void one_step(training::TrainingStep& work, std::int64_t number) {
    const auto outcome = work.backward(6 * number);
    work.update(work.rates(number + 1), outcome);
  }
};

TEST_F(SteadyState, AStepTakesNothingFromTheHeapAlsoAfterAnEvaluation) {
  for (const auto* model :
       {"hidden_act: gelu", "hidden_act: swiglu, normalization: RMSNorm, position_embedding_type: rope",
        "qk_layernorm: true, window_size: [5, 2], use_sandwich_norm: true, output_logit_softcap: 5",
        "recompute_granularity: full, recompute_method: uniform, recompute_num_layers: 1",
        "recompute_granularity: selective, recompute_modules: [core_attn, mlp], use_parallel_residual: true",
        "recompute_norm: true, recompute_activation_function: true, recompute_norm_num_layers: 1",
        "multi_latent_attention: true, q_lora_rank: 16, kv_lora_rank: 8, qk_head_dim: 8, qk_pos_emb_head_dim: 4, "
        "v_head_dim: 8, position_embedding_type: rope, mtp_num_layers: 1",
        "multi_latent_attention: true, kv_lora_rank: 8, qk_head_dim: 8, qk_pos_emb_head_dim: 4, v_head_dim: 8, "
        "recompute_granularity: selective, recompute_modules: [mla_up_proj]"}) {
    auto all = setup(model);
    kernels::Threads threads(2);
    training::ModelState state(all.model.first(), all.optimization.optimizer.get());
    state.initialise(threads, 1);
    training::TrainingStep work(all.model, all.optimization, all.data, state, threads, 1);
    for (int i = 0; i < 3; ++i) one_step(work, i);
    work.evaluate(*all.data.splits->valid, *all.data.valid_order, 0, 1);
    const auto slabs = work.arena().slabs();
    EXPECT_EQ(allocations_of([&] { one_step(work, 3); }), 0) << model;
    EXPECT_EQ(allocations_of([&] { work.evaluate(*all.data.splits->valid, *all.data.valid_order, 6, 1); }), 0) << model;
    EXPECT_EQ(allocations_of([&] { one_step(work, 4); }), 0) << model;
    EXPECT_EQ(work.arena().slabs(), slabs);
    EXPECT_EQ(work.arena().in_use(), 0u);
  }
}

TEST_F(SteadyState, HoweverManyThreadsReadAhead) {
  for (const int workers : {0, 1, 4}) {
    auto all = setup("hidden_act: gelu", workers);
    kernels::Threads threads(1);
    training::ModelState state(all.model.first(), all.optimization.optimizer.get());
    state.initialise(threads, 1);
    training::TrainingStep work(all.model, all.optimization, all.data, state, threads, 1);
    for (int i = 0; i < 3; ++i) one_step(work, i);
    EXPECT_EQ(allocations_of([&] {
                for (int i = 3; i < 20; ++i) one_step(work, i);
                one_step(work, 2);  // and for a step that does not follow
                for (int i = 3; i < 6; ++i) one_step(work, i);
              }),
              0)
        << workers << " workers";
  }
}

TEST_F(SteadyState, AShapeNoLargerThanOneSeenBeforeTakesNothing) {
  const auto all = setup("hidden_act: gelu");
  kernels::Threads threads(2);
  training::ModelState state(all.model.first(), all.optimization.optimizer.get());
  Arena arena;
  autograd::Tape recording(arena, threads, true), looking(arena, threads, false);
  Batch batch(4, 24);
  for (std::size_t i = 0; i < batch.tokens.size(); ++i)
    batch.tokens[i] = batch.labels[i] = static_cast<std::int32_t>(i % 64);
  std::fill(batch.loss_mask.begin(), batch.loss_mask.end(), 1.0F);
  const auto pass = [&](autograd::Tape& tape, std::int64_t samples, std::int64_t length) {
    auto part = batch.view(samples);  // the same elements as shorter samples
    part.seq_length = length;
    for (auto* ids : {&part.tokens, &part.labels, &part.positions, &part.document_start})
      *ids = ids->first(static_cast<std::size_t>(samples * length));
    part.loss_mask = part.loss_mask.first(static_cast<std::size_t>(samples * length));
    all.model.first().loss(tape, part, {});
    tape.backward();
    tape.clear();
  };
  pass(recording, 4, 24);
  pass(looking, 4, 24);
  EXPECT_EQ(allocations_of([&] { pass(recording, 3, 17); }), 0);
  EXPECT_EQ(allocations_of([&] { pass(looking, 1, 24); }), 0);
  EXPECT_EQ(allocations_of([&] { pass(recording, 4, 24); }), 0);
}

TEST_F(SteadyState, WindowsOfTheTimesOfRanksTakeNothing) {
  training::StragglerWatch watch(1.4, 3, 0, "host");
  int windows = 0;
  EXPECT_EQ(allocations_of([&] {
              for (int i = 0; i < 20000; ++i) {
                if (!watch.add(.001, .0005)) continue;
                const auto own = watch.window({});
                for (auto& window : watch.all_windows()) window = own;
                if (watch.close().empty()) ++windows;
              }
            }),
            0);
  EXPECT_GE(windows, 3);
}

TEST_F(SteadyState, TheReportsOfAStepTakeNothing) {
  const ConsoleFile console;
  reporting::RunLogOptions options;
  options.folder = ".";
  options.training_iters = 1000;
  options.console = console.descriptor();
  reporting::RunLog log(options);
  log::StatusLine bar(console.descriptor());
  const auto report = [&](std::int64_t iteration) {
    reporting::StepRecord step;
    step.iteration = iteration;
    step.loss = 3.25;
    step.step_seconds = .5;
    log.step(step);
    bar.show(" 12% [=====>            ] 120/1000  loss 3.214  lr 3.00e-04  12.3k tok/s  4:12 left");
  };
  report(1);
  EXPECT_EQ(allocations_of([&] { report(2); }), 0);
  EXPECT_NE(console.text().find(" iteration        2/    1000 |"), std::string::npos);
}

}  // namespace
}  // namespace tessera::recipe
