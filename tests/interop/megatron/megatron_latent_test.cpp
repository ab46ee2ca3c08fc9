// Checkpoints of Megatron-LM of models with multi-latent attention and multi-token prediction, on any layout.
#include <gtest/gtest.h>

#include <deque>
#include <map>

#include "framework/checkpoint/copy_converted.h"
#include "framework/interop/megatron/megatron_files.h"
#include "framework/interop/torch/torch_file.h"
#include "tests/interop/megatron/save.h"
#include "tests/own_folder.h"
#include "tests/sanitized.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

class MegatronLatent : public InOwnFolder {
 protected:
  MegatronLatent() : InOwnFolder(fs::is_directory("/dev/shm") ? "/dev/shm/" : testing::TempDir()) {}
  options::Mappings mappings;

  static options::Value recipe(bool tied, bool compresses_queries) {
    options::Value out;
    out.kind = options::Value::Kind::group;
    const auto set = [&](const std::string& option, const std::string& value) {
      out.set("model_config." + option, options::Value::of(value, options::Origin{"test", 1, "", 1}));
    };
    for (const auto& [option, value] : {std::pair{"num_layers", "4"},
                                        {"hidden_size", "8"},
                                        {"num_attention_heads", "4"},
                                        {"seq_length", "6"},
                                        {"vocab_size", "40"},
                                        {"ffn_hidden_size", "12"},
                                        {"multi_latent_attention", "true"},
                                        {"kv_lora_rank", "6"},
                                        {"qk_head_dim", "3"},
                                        {"qk_pos_emb_head_dim", "2"},
                                        {"v_head_dim", "5"},
                                        {"qk_layernorm", "true"},
                                        {"mtp_num_layers", "2"},
                                        {"position_embedding_type", "rope"},
                                        {"normalization", "RMSNorm"},
                                        {"hidden_act", "swiglu"},
                                        {"add_bias_linear", "false"}})
      set(option, value);
    set("untie_embeddings_and_output_weights", tied ? "false" : "true");
    if (compresses_queries) set("q_lora_rank", "4");
    return out;
  }

  /// Every weight of the model and its optimizer state, each element a number of its own.
  std::vector<checkpoint::TensorRange> model(const options::Value& of) {
    std::vector<checkpoint::TensorRange> ranges;
    const auto whole = ranks_of(of, {});
    for (const auto& part : whole.at(0).chunks.at(0))
      for (const auto* state : {"", "optimizer.exp_avg.", "optimizer.exp_avg_sq."}) {
        auto& values = memory_.emplace_back(static_cast<std::size_t>(part.global_shape.elements()));
        for (auto& value : values) value = static_cast<float>(++count_ % 16777213);
        ranges.push_back(checkpoint::whole(state + part.name, Tensor(std::span(values), part.global_shape)));
      }
    return ranges;
  }

  void expect_all(const std::vector<checkpoint::TensorRange>& expected, const std::string& what) {
    const megatron::MegatronCheckpoint source("run", mappings);
    EXPECT_EQ(source.names().size() * 3, expected.size()) << what;
    for (const auto& range : expected) {
      ASSERT_TRUE(source.has(range.name)) << what << ", " << range.name;
      ASSERT_EQ(source.shape(range.name), range.global_shape) << what << ", " << range.name;
      std::vector<float> values(static_cast<std::size_t>(range.global_shape.elements()));
      source.read(range.name, Tensor(std::span(values), range.global_shape));
      const auto given = range.tensor.floats();
      ASSERT_EQ(values, std::vector<float>(given.begin(), given.end())) << what << ", " << range.name;
    }
  }

  /// The names that a rank saved, in their order, and the shapes.
  struct Saved {
    explicit Saved(const fs::path& file) : torch(file) {
      const auto& items = torch.root().find("model")->items;
      for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
        names.push_back(items[i]->text);
        shapes[names.back()] = torch.tensor(*items[i + 1], names.back()).shape();
      }
    }
    torch::TorchFile torch;
    std::vector<std::string> names;
    std::map<std::string, Shape> shapes;
  };

 private:
  std::deque<std::vector<float>> memory_;
  std::int64_t count_ = 0;
};

TEST_F(MegatronLatent, EveryLayoutReadsBackToTheSameTensors) {
  int layouts = 0;
  for (const bool tied : {false, true})
    for (const bool compresses_queries : {false, true}) {
      const auto of = recipe(tied, compresses_queries);
      const auto all = model(of);
      for (const std::int64_t tensor : {1, 2, 4})
        for (const auto& layers :
             std::vector<std::vector<std::vector<std::int64_t>>>{{}, {{3}, {1}}, {{1, 1}, {1, 1}}, {{2}, {2}, {0}}})
          for (const bool shared : {false, true}) {
            if (layouts++ % part_of_inputs != 0) continue;
            const checkpoint::CheckpointLayout layout{tensor, 2, layers, shared};
            fs::remove_all("run");
            save_megatron("run", {.iteration = 7}, all, of, DType::float32, mappings, layout);
            expect_all(all, text(tied ? "tied" : "untied", ", tensor ", tensor, ", stages ", layout.stages(), ", ",
                                 layers.empty() ? 1 : layers[0].size(), " chunks, shared ", shared));
          }
    }
  EXPECT_EQ(layouts, 96);
}

TEST_F(MegatronLatent, ARankHasItsRowsAndTheLastStageTheEmbeddingAndThePredictions) {
  for (const bool tied : {false, true}) {
    const auto of = recipe(tied, true);
    fs::remove_all("run");
    const auto folder =
        save_megatron("run", {.iteration = 7}, model(of), of, DType::float32, mappings, {2, 1, {{2}, {2}}, false});
    const Saved first(folder / "mp_rank_01_000" / "model_optim_rng.pt"),
        last(folder / "mp_rank_01_001" / "model_optim_rng.pt");
    for (const auto* saved : {&first, &last}) {
      const std::string layer = "decoder.layers.1.self_attention.";
      const auto& shapes = saved->shapes;
      EXPECT_EQ(shapes.at(layer + "linear_q_down_proj.weight"), Shape({2, 8}));
      EXPECT_EQ(shapes.at(layer + "linear_q_up_proj.weight"), Shape({10, 4}));
      EXPECT_EQ(shapes.at(layer + "linear_kv_down_proj.weight"), Shape({4, 8}));
      EXPECT_EQ(shapes.at(layer + "linear_kv_up_proj.weight"), Shape({16, 6}));
      EXPECT_EQ(shapes.at(layer + "linear_proj.weight"), Shape({8, 10}));
      EXPECT_EQ(shapes.at(layer + "q_layernorm.weight"), Shape({4}));
      EXPECT_EQ(shapes.at("embedding.word_embeddings.weight"), Shape({20, 8}));
    }
    EXPECT_EQ(last.shapes.at("mtp.layers.1.eh_proj.weight"), Shape({4, 16}));
    EXPECT_EQ(last.shapes.count("output_layer.weight"), tied ? 0U : 1U);
    // The order of Megatron's modules, which numbers the optimizer's state.
    const std::vector<std::string> prediction = {"enorm",
                                                 "hnorm",
                                                 "eh_proj",
                                                 "transformer_layer.input_layernorm",
                                                 "transformer_layer.self_attention.linear_proj",
                                                 "transformer_layer.self_attention.linear_q_down_proj",
                                                 "transformer_layer.self_attention.linear_q_up_proj",
                                                 "transformer_layer.self_attention.linear_kv_down_proj",
                                                 "transformer_layer.self_attention.linear_kv_up_proj",
                                                 "transformer_layer.self_attention.q_layernorm",
                                                 "transformer_layer.self_attention.kv_layernorm",
                                                 "transformer_layer.pre_mlp_layernorm",
                                                 "transformer_layer.mlp.linear_fc1",
                                                 "transformer_layer.mlp.linear_fc2",
                                                 "final_layernorm"};
    auto at = std::find(last.names.begin(), last.names.end(), "mtp.layers.0.enorm.weight");
    for (const auto* layer : {"mtp.layers.0.", "mtp.layers.1."})
      for (const auto& part : prediction) {
        ASSERT_NE(at, last.names.end());
        EXPECT_EQ(*at++, layer + part + ".weight");
      }
    EXPECT_EQ(last.names.front(), "embedding.word_embeddings.weight");
  }
}

TEST_F(MegatronLatent, DownProjectionsThatEveryRankHasWholeAreReadToo) {
  const auto of = recipe(false, true);
  const auto all = model(of);
  const checkpoint::CheckpointLayout layout{2, 1, {}, false};
  auto ranks = ranks_of(of, layout);
  int whole = 0;
  for (auto& rank : ranks)
    for (auto& part : rank.chunks.at(0))
      if (part.name.find("_down_proj") != std::string::npos) part.boxes = {Box::whole(part.global_shape)}, ++whole;
  EXPECT_EQ(whole, 2 * 2 * 6);  // ranks, projections, layers
  checkpoint::save_all_ranks(megatron::MegatronFormat(),
                             megatron_save("run", {.iteration = 7}, of, DType::float32, mappings, layout), ranks, all);
  expect_all(all, "whole down-projections");
}

TEST_F(MegatronLatent, NormsInsideTheProductsOfTransformerEngineAreNormsOfOurs) {
  const auto table = mappings.table("weights/megatron.yaml");
  const auto ours = [&](const std::string& theirs) { return megatron::our_name_of_megatron(theirs, table); };
  for (const std::string layer : {"decoder.layers.12.", "mtp.layers.1.transformer_layer."}) {
    const auto attention = layer + "self_attention.";
    EXPECT_EQ(ours(attention + "linear_q_up_proj.layer_norm_weight"), attention + "q_layernorm.weight");
    EXPECT_EQ(ours(attention + "linear_kv_up_proj.layer_norm_bias"), attention + "kv_layernorm.bias");
    EXPECT_EQ(ours(layer + "mlp.linear_fc1.layer_norm_weight"), layer + "pre_mlp_layernorm.weight");
    EXPECT_EQ(ours(attention + "linear_qkv.layer_norm_weight"), layer + "input_layernorm.weight");
  }
}

}  // namespace
}  // namespace tessera
