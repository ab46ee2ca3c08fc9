#pragma once

#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "framework/checkpoint/layout.h"
#include "framework/options/yaml.h"

// Models and layouts of ranks that tests of checkpoints draw by a printed seed.

namespace tessera {

/// A small model; without `experts` it is dense.
struct DrawnModel {
  int layers = 4, experts = 0, predictions = 0;
  bool tied = false, gated = true, biases = false, shared_expert = false, bias_of_router = false, latent = false;
  std::string kinds = "1";  ///< moe_layer_freq
};

inline options::Value recipe_of(const DrawnModel& form) {
  return options::parse_yaml(
      text("model_config: {num_layers: ", form.layers,
           ", hidden_size: 8, num_attention_heads: 4, ffn_hidden_size: 16, seq_length: 5, max_position_embeddings: 5, "
           "vocab_size: 16, position_embedding_type: rope, normalization: ",
           form.biases ? "LayerNorm, add_bias_linear: true" : "RMSNorm, add_bias_linear: false", ", hidden_act: ",
           form.gated ? "swiglu" : "gelu", ", untie_embeddings_and_output_weights: ", form.tied ? "false" : "true",
           form.experts > 0 ? text(", num_experts: ", form.experts) : "",
           form.predictions > 0 ? text(", mtp_num_layers: ", form.predictions) : "",
           form.latent ? ", multi_latent_attention: true, kv_lora_rank: 6, qk_head_dim: 3, qk_pos_emb_head_dim: 2, "
                         "v_head_dim: 5, q_lora_rank: 4, qk_layernorm: true"
                       : "",
           "}\n",
           form.experts == 0
               ? ""
               : text("moe_config: {moe_ffn_hidden_size: 12, moe_layer_freq: ", form.kinds,
                      form.bias_of_router ? ", moe_router_score_function: sigmoid, moe_router_enable_expert_bias: true"
                                          : "",
                      form.shared_expert ? ", moe_shared_expert_intermediate_size: 8" : "", "}\n")),
      "test");
}

/// Draws by the seed in the environment variable TESSERA_TEST_SEED, else by a new one.
class Draw {
 public:
  template <class Values>
  auto one_of(const Values& values) {
    return values[std::uniform_int_distribution<std::size_t>(0, values.size() - 1)(generator_)];
  }
  bool chance() { return one_of(std::vector<int>{0, 1}) == 1; }

  DrawnModel model(int experts) {
    return {.layers = 4,
            .experts = experts,
            .predictions = one_of(std::vector{0, 0, 1}),
            .tied = chance(),
            .gated = chance(),
            .biases = experts == 0 && chance(),
            .shared_expert = chance(),
            .bias_of_router = chance(),
            .latent = chance(),
            .kinds = one_of(std::vector<std::string>{"1", "2", "[0, 1, 1, 1]", "[1, 0, 0, 1]"})};
  }
  /// Of the ranks of that model.
  checkpoint::CheckpointLayout layout(const DrawnModel& of) {
    const std::vector<std::vector<std::vector<std::int64_t>>> cuts = {
        {}, {{3}, {1}}, {{1, 1}, {1, 1}}, {{1, 2}, {1, 0}}};
    const std::vector<std::int64_t> sizes = {1, 2, 4};
    const auto tensor = one_of(sizes);
    return {.tensor = tensor,
            .data = 4,
            .layers = one_of(cuts),
            .distributed_optimizer = chance(),
            .expert = of.experts > 0 ? one_of(sizes) : 1,
            .expert_tensor = of.experts > 0 ? one_of(sizes) : tensor};
  }

  std::mt19937& generator() { return generator_; }
  /// The seed, for messages.
  std::string about() const { return text("TESSERA_TEST_SEED=", seed_); }

 private:
  static unsigned chosen() {
    const char* given = std::getenv("TESSERA_TEST_SEED");
    return given != nullptr ? static_cast<unsigned>(std::atoi(given)) : std::random_device()();
  }
  unsigned seed_ = chosen();
  std::mt19937 generator_{seed_};
};

}  // namespace tessera
