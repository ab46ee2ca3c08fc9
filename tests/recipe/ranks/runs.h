#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "framework/recipe/build.h"
#include "framework/recipe/memory.h"
#include "framework/recipe/open_data.h"
#include "framework/training/loop/trainer.h"
#include "framework/training/step/step.h"
#include "tests/ranks/ranks.h"
#include "tests/recipe/small_run.h"

namespace tessera::recipe {

using Lines = std::vector<std::string>;

/// Small runs of four ranks and of one.
class RunsOfRanks : public testing::Test {
 protected:
  RunsOfRanks() {
    if (world().rank() == 0) {
      std::string name = folder_in_memory() + "tessera.XXXXXX";
      if (::mkdtemp(name.data()) != nullptr) folder_ = name;
      write_token_file((folder_ / "data").string(), 7);
      std::ofstream(folder_ / "run.yaml")
          << "training_config: {training_iters: 4, log_interval: 1, eval_interval: 2, eval_iters: 1, num_threads: 1, "
             "tensorboard: false, resume_training: false}\n"
             "model_config: {num_layers: 4, hidden_size: 16, num_attention_heads: 4, seq_length: 16, vocab_size: 512, "
             "hidden_dropout_rate: 0.1}\n"
             "optimizer_config: {learning_rate: 1e-2}\n"
             "dataset_config: {data_path: "
          << (folder_ / "data").string()
          << ", split: \"80,10,10\", batch_size: 4, global_batch_size: 16, tokenizer_type: NullTokenizer, "
             "vocab_size: 63, eod_mask_loss: true}\n";
    }
    folder_ = world().all().all_gather(folder_.string(), "the folder of the test").front();
  }
  ~RunsOfRanks() override {
    world().all().all_gather("", "the end of the test");
    if (world().rank() == 0) std::filesystem::remove_all(folder_);
  }

  Recipe recipe_of(const std::string& run, Lines sets) {
    sets.push_back("training_config.output_dir=" + (folder_ / run).string());
    return read_recipe((folder_ / "run.yaml").string(), sets, registries);
  }
  /// What rank 0 wrote of a run, without what depends on clocks and layout.
  std::vector<std::map<std::string, double>> written(const std::string& run) {
    world().all().all_gather("", "the end of a run");
    std::ifstream file(folder_ / run / "metrics.jsonl");
    std::vector<std::map<std::string, double>> all;
    for (std::string line; std::getline(file, line);) {
      const auto object = nlohmann::json::parse(line);
      auto& step = all.emplace_back();
      for (const auto* key : {"loss", "grad_norm", "validation_loss", "pair_margin", "pair_accuracy", "rewards/chosen",
                              "rewards/rejected", "rewards/margins", "rewards/accuracies", "logps/chosen",
                              "validation_rewards/margins", "validation_rewards/accuracies"})
        if (object.contains(key)) step[key] = object.at(key);
    }
    return all;
  }
  /// Runs of all ranks give the losses of a run of one rank, on the usual layouts and on `more`.
  void expect_same(const Lines& common, const std::vector<Lines>& more = {}) {
    std::vector<Lines> layouts = {
        {},
        {p + "tensor_model_parallel_size=2", p + "sequence_parallel=true"},
        {p + "tensor_model_parallel_size=4"},
        {p + "pipeline_model_parallel_size=2", p + "tensor_model_parallel_size=2"},
        {p + "pipeline_model_parallel_size=2", p + "num_virtual_stages_per_pipeline_rank=2",
         m + "recompute_granularity=full", m + "recompute_method=uniform", m + "recompute_num_layers=1"},
        {p + "context_parallel_size=2"},
        {p + "context_parallel_size=2", p + "pipeline_model_parallel_size=2"}};
    layouts.insert(layouts.end(), more.begin(), more.end());
    expect_same_on(layouts, common);
  }
  /// The same on `layouts`.
  void expect_same_on(const std::vector<Lines>& layouts, const Lines& common) {
    ++calls;
    if (world().rank() == 0) training::train(build(recipe_of(text("alone", calls), common)), training::StopSignal{});
    const auto alone = written(text("alone", calls));
    ASSERT_GE(alone.size(), 4U);
    for (std::size_t i = 0; i < layouts.size(); ++i) {
      auto sets = common;
      sets.insert(sets.end(), layouts[i].begin(), layouts[i].end());
      const auto run = text("layout", calls, "-", i);
      const auto recipe = recipe_of(run, sets);
      const auto processes = arrange(recipe, world());
      training::train(build(recipe, processes, open_data(recipe, processes)), training::StopSignal{});
      const auto all = written(run);
      ASSERT_EQ(all.size(), alone.size());
      for (std::size_t step = 0; step < all.size(); ++step) {
        ASSERT_EQ(all[step].size(), alone[step].size());
        for (const auto& [key, value] : alone[step])
          EXPECT_NEAR(all[step].at(key), value, 1e-5 * std::max(0.1, std::abs(value)))
              << key << " of step " << step + 1 << ", layout " << i;
      }
    }
  }
  /// The losses of a run of all ranks in the run folder `run`.
  std::vector<double> losses_of(const std::string& run, const Lines& sets) {
    const auto recipe = recipe_of(run, sets);
    const auto processes = arrange(recipe, world());
    training::train(build(recipe, processes, open_data(recipe, processes)), training::StopSignal{});
    std::vector<double> losses;
    for (const auto& step : written(run)) losses.push_back(step.at("loss"));
    return losses;
  }
  /// Bytes of activations of this rank in a step, and operations of the run: what is foreseen, and what a step takes.
  struct Activations {
    std::int64_t foreseen = 0, taken = 0;
    double foreseen_flops = 0, flops = 0;
    int stages = 1;
  };
  Activations activations_of(const Lines& sets) {
    const auto recipe = recipe_of("run", sets);
    const auto processes = arrange(recipe, world());
    const auto figures = layout_figures(recipe, world().size());
    const auto need = memory_of_stage(recipe, figures, processes.place.pipeline);
    EXPECT_TRUE(need.complete) << need.not_foreseen;
    auto all = build(recipe, processes, open_data(recipe, processes));
    std::vector<nn::Parameter*> parameters;
    for (const auto& chunk : all.model.chunks)
      for (auto* parameter : chunk->parameters()) parameters.push_back(parameter);
    const auto* optimizer = all.optimization.optimizer.get();
    training::StateLayout layout(parameters, optimizer,
                                 {.rank = processes.data.rank(), .ranks = processes.data.size()});
    training::StateMemory memory(layout.segment(), processes.data);
    training::ModelState state(std::move(layout), std::move(memory), optimizer);
    kernels::Threads threads(1);
    state.initialise(threads, 1);
    training::TrainingStep work(all.model, all.optimization, all.data, state, threads, 1);
    const auto flops = work.backward(0).flops;
    Activations out{.taken = static_cast<std::int64_t>(work.arena().high_water()),
                    .foreseen_flops = std::accumulate(figures.flops.begin(), figures.flops.end(), 0.0),
                    .flops = flops,
                    .stages = processes.pipeline.size()};
    for (const auto& part : need.parts)
      if (part.name == "activations") out.foreseen = part.bytes;
    EXPECT_GT(out.foreseen, 0);
    return out;
  }
  Lines stages(int count, const std::string& layers) const {
    return {text(p, "pipeline_model_parallel_size=", count), p + "num_layer_list=" + layers};
  }
  const std::string p = "parallel_config.", m = "model_config.";
  Registries registries;
  int calls = 0;                  ///< of expect_same
  std::filesystem::path folder_;  ///< the same on all ranks
};

}  // namespace tessera::recipe
