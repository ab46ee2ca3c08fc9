// Experts in checkpoints of Megatron-LM: their bias, and the names of one module for all experts.
#include <gtest/gtest.h>

#include <deque>
#include <numeric>

#include "framework/interop/megatron/megatron.h"
#include "framework/options/yaml.h"
#include "tests/interop/megatron/floats.h"
#include "tests/interop/megatron/save.h"
#include "tests/own_folder.h"
#include "tests/story.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

const std::string layer = "decoder.layers.0.mlp.", bias = "decoder.layers.1.mlp.router.expert_bias";

class MegatronExperts : public InOwnFolder {
 protected:
  options::Mappings mappings;

  static options::Value recipe() {
    return options::parse_yaml(R"(
model_config:
  num_layers: 3
  hidden_size: 8
  num_attention_heads: 2
  num_experts: 4
  ffn_hidden_size: 12
  seq_length: 5
  max_position_embeddings: 5
  vocab_size: 16
  position_embedding_type: rope
  normalization: RMSNorm
  hidden_act: swiglu
  add_bias_linear: false
  untie_embeddings_and_output_weights: true
moe_config:
  moe_layer_freq: [0, 1, 1]
  moe_router_score_function: sigmoid
  moe_router_enable_expert_bias: true
)",
                               "test");
  }

  /// Every weight of the model with optimizer state; each element is a number of its own.
  std::vector<checkpoint::TensorRange> model() {
    std::vector<checkpoint::TensorRange> all;
    for (const auto& rank : ranks_of(recipe(), {}))
      for (const auto& part : rank.chunks[0])
        for (const std::string beginning : {"", "optimizer.exp_avg.", "optimizer.exp_avg_sq."}) {
          const bool no_state = !beginning.empty() && part.role == ParameterRole::expert_bias;
          auto& values = memory_.emplace_back(static_cast<std::size_t>(part.global_shape.elements()));
          for (auto& value : values) value = no_state ? 0.F : static_cast<float>(++count_) + 0.37F;
          all.push_back(
              checkpoint::whole(beginning + part.name, Tensor(std::span(values), part.global_shape), part.role));
        }
    return all;
  }

  /// Writes {args: {num_experts}, model: the tensors, optimizer: {state, groups}}; exp_avg is the weight plus 100.
  void write_file(const std::vector<std::pair<std::string, Shape>>& tensors, std::int64_t experts) {
    fs::create_directories("run/iter_0000001/mp_rank_00");
    torch::TorchFileWriter file;
    auto& p = file.pickle;
    std::deque<std::vector<float>> memory;
    const auto tensor = [&](const Shape& shape, float from) {
      auto& values = memory.emplace_back(static_cast<std::size_t>(shape.elements()));
      std::iota(values.begin(), values.end(), from);
      file.tensor(Tensor(std::span(values), shape));
    };
    const auto dict = [&](const char* name, const auto& content) {
      if (name != nullptr) p.text(name);
      p.empty_dict();
      p.mark();
      content();
      p.set_items();
    };
    dict(nullptr, [&] {
      dict("args", [&] {
        p.text("num_experts");
        p.integer(experts);
      });
      dict("model", [&] {
        for (const auto& [name, shape] : tensors) {
          p.text(name);
          tensor(shape, 0);
        }
      });
      dict("optimizer", [&] {
        dict("state", [&] {
          for (std::size_t i = 0; i < tensors.size(); ++i) {
            p.integer(static_cast<std::int64_t>(i));
            dict(nullptr, [&] {
              p.text("exp_avg");
              tensor(tensors[i].second, 100);
            });
          }
        });
        p.text("param_groups");
        p.empty_list();
        p.mark();
        dict(nullptr, [&] {
          p.text("wd_mult");
          p.real(1);
          p.text("params");
          p.empty_list();
          p.mark();
          for (std::size_t i = 0; i < tensors.size(); ++i) p.integer(static_cast<std::int64_t>(i));
          p.append_items();
        });
        p.append_items();
      });
    });
    file.write("run/iter_0000001/mp_rank_00/model_optim_rng.pt");
  }

 private:
  std::deque<std::vector<float>> memory_;
  std::int64_t count_ = 0;
};

TEST_F(MegatronExperts, TheBiasIsPartOfTheModelAndNotOfTheOptimizer) {
  const auto all = model();
  for (const auto type : {DType::float32, DType::bfloat16})
    for (const bool shared : {false, true}) {
      fs::remove_all("run");
      const auto folder =
          save_megatron("run", {.iteration = 7, .updates = 6}, all, recipe(), type, mappings, {1, 2, {}, shared});
      const megatron::MegatronCheckpoint source("run", mappings);
      EXPECT_EQ(source.dtype(bias), DType::float32);  // also beside weights of 16 bits
      for (const auto& range : all) {
        ASSERT_TRUE(source.has(range.name)) << range.name;
        const auto given = range.tensor.floats();
        EXPECT_EQ(floats(source, range.name), std::vector<float>(given.begin(), given.end())) << range.name;
      }
      EXPECT_EQ(3 * source.names().size(), all.size());
      const torch::TorchFile file(folder / "mp_rank_00" / "model_optim_rng.pt");
      if (shared) continue;
      const auto* optimizer = file.root().find("optimizer");
      const auto* inner = type == DType::float32 ? optimizer : optimizer->find("optimizer");
      EXPECT_EQ(inner->find("state")->items.size() / 2, source.names().size() - 2);  // two layers have a bias
    }
}

TEST_F(MegatronExperts, TheArgumentsSayTheModelWithoutOurRecipe) {
  fs::remove_all("run");
  save_megatron("run", {.iteration = 7}, model(), recipe(), DType::float32, mappings);
  const auto read = megatron::MegatronCheckpoint("run", mappings).recipe();
  EXPECT_EQ(text(*read.at("moe_config.moe_router_enable_expert_bias")), "true");
  EXPECT_EQ(text(*read.at("moe_config.moe_layer_freq")), "[0,1,1]");
}

TEST_F(MegatronExperts, WeightsOfAModuleForAllExpertsAreNumbered) {
  write_file({{layer + "experts.linear_fc1.weight0", {4, 3}},
              {layer + "experts.linear_fc1.weight11", {4, 3}},
              {layer + "experts.linear_fc2.weight11", {3, 2}}},
             12);
  const megatron::MegatronCheckpoint source("run/iter_0000001", mappings);
  EXPECT_EQ(source.names(), (std::vector<std::string>{layer + "experts.local_experts.0.linear_fc1.weight",
                                                      layer + "experts.local_experts.11.linear_fc1.weight",
                                                      layer + "experts.local_experts.11.linear_fc2.weight"}));
}

TEST_F(MegatronExperts, OneWeightForAllExpertsIsDividedAndTransposed) {
  write_file({{layer + "experts.weight1", {3, 8}}, {layer + "experts.weight2", {4, 3}}}, 2);
  const megatron::MegatronCheckpoint source("run/iter_0000001", mappings);
  for (int e = 0; e < 2; ++e) {
    const auto expert = text(layer, "experts.local_experts.", e, ".");
    const auto first = source.shape(expert + "linear_fc1.weight"), second = source.shape(expert + "linear_fc2.weight");
    EXPECT_EQ(first, (Shape{4, 3}));
    EXPECT_EQ(second, (Shape{3, 2}));
    for (const float state : {0.F, 100.F}) {
      const std::string beginning = state > 0 ? "optimizer.exp_avg." : "";
      const auto fc1 = floats(source, beginning + expert + "linear_fc1.weight");
      const auto fc2 = floats(source, beginning + expert + "linear_fc2.weight");
      for (int out = 0; out < 4; ++out)
        for (int in = 0; in < 3; ++in)
          EXPECT_EQ(fc1[static_cast<std::size_t>(out * 3 + in)], state + static_cast<float>(e * 12 + in * 4 + out));
      for (int out = 0; out < 3; ++out)
        for (int in = 0; in < 2; ++in)
          EXPECT_EQ(fc2[static_cast<std::size_t>(out * 2 + in)], state + static_cast<float>(e * 6 + in * 3 + out));
    }
  }
  EXPECT_EQ(source.names().size(), 4U);
  EXPECT_EQ(source.optimizer_names().size(), 4U);
}

TEST_F(MegatronExperts, ANumberOfExpertsThatDoesNotFitIsNamed) {
  for (const std::int64_t experts : {0, 5}) {
    write_file({{layer + "experts.weight1", {3, 8}}}, experts);
    const auto story = story_of([&] { megatron::MegatronCheckpoint("run/iter_0000001", mappings); });
    EXPECT_TRUE(says(story, text("is [3, 8], which is not that of the num_experts ", experts))) << story;
  }
}

}  // namespace
}  // namespace tessera
