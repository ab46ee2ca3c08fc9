#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "framework/recipe/build.h"
#include "framework/recipe/recipe.h"
#include "framework/tensor/batch.h"
#include "framework/training/state/model_state.h"

// The model of the benchmarks that run a whole model: GPT-2 124M without dropout, and random tokens.

namespace tessera {

/// One batch of random tokens, used for every step, so that the loss must fall.
class RandomBatch {
 public:
  RandomBatch(std::int64_t samples, std::int64_t length, std::int64_t vocabulary) : batch_(samples, length) {
    std::mt19937 random(1);
    for (auto& t : batch_.tokens) t = static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(vocabulary));
    for (auto& t : batch_.labels) t = static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(vocabulary));
    std::fill(batch_.loss_mask.begin(), batch_.loss_mask.end(), 1.0F);
    for (std::size_t i = 0; i < batch_.positions.size(); ++i)
      batch_.positions[i] = static_cast<std::int32_t>(i % static_cast<std::size_t>(length));
  }
  TokenBatch view() const { return batch_.view(); }

 private:
  Batch batch_;
};

/// GPT-2 124M with changes, "group.key=value". Throws as recipe::read_recipe.
inline recipe::Recipe read_gpt2(const std::vector<std::string>& sets) {
  const std::string file = "/tmp/tessera_bench_" + std::to_string(getpid()) + ".yaml";
  std::ofstream(file) << "training_config: {training_iters: 1}\n"
                         "model_config: {num_layers: 12, hidden_size: 768, num_attention_heads: 12, seq_length: 256, "
                         "max_position_embeddings: 1024,\n"
                         "  vocab_size: 50304, hidden_dropout_rate: 0, attention_dropout_rate: 0}\n"
                         "optimizer_config: {betas: [0.9, 0.95]}\n"
                         "dataset_config: {dataset_type: mock, batch_size: 4}\n";
  const struct Removed {
    const std::string& file;
    ~Removed() { std::remove(file.c_str()); }
  } removed{file};
  return recipe::read_recipe(file, sets, recipe::Registries{});
}

/// The whole model of a recipe in one process, with initial weights; adapters and frozen parameters as in a run.
struct ModelToTrain {
  ModelToTrain(const recipe::Recipe& recipe, kernels::Threads& threads)
      : model(recipe::build_model(recipe, nullptr)),
        optimizer(recipe.optimizer.make()),
        state(*model, optimizer.get()) {
    state.initialise(threads, 1);
  }
  std::unique_ptr<model::Model> model;
  std::unique_ptr<optim::Optimizer> optimizer;
  training::ModelState state;
};

}  // namespace tessera
