#include "framework/recipe/memory.h"

#include <gtest/gtest.h>

#include "framework/options/yaml.h"
#include "framework/recipe/build.h"
#include "framework/training/step.h"
#include "tests/own_folder.h"

namespace tessera::recipe {
namespace {

class Memory : public InOwnFolder {
 protected:
  Recipe read(const std::string& model, const std::vector<std::string>& sets = {}) {
    write("run.yaml",
          "training_config: {training_iters: 100, eval_interval: 10, eval_iters: 2}\n"
          "model_config: {num_layers: 3, hidden_size: 32, num_attention_heads: 4, seq_length: 24, vocab_size: 64, " +
              model +
              "}\n"
              "optimizer_config: {learning_rate: 1e-3}\n"
              "dataset_config: {dataset_type: mock, batch_size: 3, micro_batch_num: 2}\n");
    return read_recipe("run.yaml", sets, Registries{});
  }
  static std::int64_t part(const MemoryNeed& need, const std::string& name) {
    for (const auto& one : need.parts)
      if (one.name == name) return one.bytes;
    return 0;
  }
  static std::string largest(const Recipe& recipe, std::int64_t ranks = 1) {
    const auto words = text_of(memory_by_stage(recipe, layout_figures(recipe, ranks)).back());
    const auto end = words.find(" (the largest part)");
    const auto start = words.rfind(", ", end) == std::string::npos ? 0 : words.rfind(", ", end) + 2;
    return words.substr(std::max(start, words.rfind(": ", end) + 2), end);
  }
};

TEST_F(Memory, NeverSaysMoreThanAStepTakesAndTheStateExactly) {
  for (const auto* model :
       {"hidden_act: gelu", "hidden_act: swiglu, normalization: RMSNorm, position_embedding_type: rope",
        "qk_layernorm: true, window_size: [5, 2], use_sandwich_norm: true, output_logit_softcap: 5",
        "recompute_granularity: full, recompute_method: uniform, recompute_num_layers: 2",
        "recompute_granularity: full, recompute_method: block, recompute_num_layers: 1",
        "recompute_granularity: selective, recompute_modules: [core_attn, mlp], use_parallel_residual: true",
        "multi_latent_attention: true, q_lora_rank: 16, kv_lora_rank: 8, qk_head_dim: 8, qk_pos_emb_head_dim: 4, "
        "v_head_dim: 8, position_embedding_type: rope, mtp_num_layers: 1",
        "multi_latent_attention: true, kv_lora_rank: 8, qk_head_dim: 8, qk_pos_emb_head_dim: 4, v_head_dim: 8, "
        "recompute_granularity: selective, recompute_modules: [mla_up_proj]",
        "group_query_attention: true, num_query_groups: 2, params_dtype: bfloat16"}) {
    const auto recipe = read(model);
    const auto need = memory_by_stage(recipe, layout_figures(recipe, 1)).at(0);
    auto all = build(recipe);
    kernels::Threads threads(2);
    training::ModelState state(all.model.first(), all.optimization.optimizer.get());
    state.initialise(threads, 1);
    training::TrainingStep work(all.model, all.optimization, all.data, state, threads, 1);
    work.backward(0);
    EXPECT_EQ(part(need, "weights") + part(need, "gradients") + part(need, "optimizer state"),
              state.layout().bytes().all())
        << model;
    const auto claimed = part(need, "activations") + part(need, "logits");
    EXPECT_GT(claimed, 0) << model;
    EXPECT_LE(claimed, static_cast<std::int64_t>(work.arena().high_water())) << model;
  }
}

TEST_F(Memory, TheLargestPartIsNamed) {
  EXPECT_EQ(largest(read("")).rfind("optimizer state", 0), 0U) << largest(read(""));
  const auto batches = read("", {"dataset_config.batch_size=100000"});
  EXPECT_EQ(largest(batches).rfind("activations", 0), 0U) << largest(batches);
  const auto samples = read("", {"training_config.training_iters=1000000000"});
  EXPECT_EQ(largest(samples).rfind("data", 0), 0U) << largest(samples);
  const auto turned = read("position_embedding_type: rope, max_position_embeddings: 1000000");
  EXPECT_EQ(largest(turned).rfind("position tables", 0), 0U) << largest(turned);
}

}  // namespace
}  // namespace tessera::recipe
