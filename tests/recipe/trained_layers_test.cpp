// freeze_trainable_layers and the options beside it train what LLaMA-Factory's rule of substrings trains, with the
// names that Transformers gives the parameters.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "framework/model/model.h"
#include "framework/recipe/build.h"
#include "framework/training/state/trained_names.h"
#include "tests/own_folder.h"
#include "tests/recipe/groups.h"
#include "tests/recipe/small_run.h"
#include "tests/story.h"

namespace tessera::recipe {
namespace {

const Lines layers_of_llama = {m + "hidden_act=swiglu",
                               m + "add_bias_linear=false",
                               m + "ffn_hidden_size=24",
                               m + "normalization=RMSNorm",
                               m + "qk_layernorm=true",
                               m + "position_embedding_type=rope",
                               m + "untie_embeddings_and_output_weights=true"};

/// A parameter and its names in Transformers' model.
struct NamedParameter {
  std::string ours;
  std::vector<std::string> theirs;
};

std::vector<NamedParameter> parameters_of_llama(int layers) {
  std::vector<NamedParameter> all = {{"embedding.word_embeddings.weight", {"model.embed_tokens.weight"}},
                                     {"decoder.final_layernorm.weight", {"model.norm.weight"}},
                                     {"output_layer.weight", {"lm_head.weight"}}};
  for (int i = 0; i < layers; ++i) {
    const auto ours = text("decoder.layers.", i, "."), theirs = text("model.layers.", i, ".");
    const auto add = [&](const std::string& own, const std::vector<std::string>& names) {
      auto& one = all.emplace_back(NamedParameter{ours + own + ".weight", {}});
      for (const auto& name : names) one.theirs.push_back(theirs + name + ".weight");
    };
    add("input_layernorm", {"input_layernorm"});
    add("self_attention.linear_qkv", {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"});
    add("self_attention.q_layernorm", {"self_attn.q_norm"});
    add("self_attention.k_layernorm", {"self_attn.k_norm"});
    add("self_attention.linear_proj", {"self_attn.o_proj"});
    add("pre_mlp_layernorm", {"post_attention_layernorm"});
    add("mlp.linear_fc1", {"mlp.gate_proj", "mlp.up_proj"});
    add("mlp.linear_fc2", {"mlp.down_proj"});
  }
  return all;
}

/// What must be in the name of a trained parameter.
std::vector<std::string> wanted_in_names(int layers, int count, const Lines& modules, const Lines& extra) {
  std::vector<std::string> all = extra;
  for (int i = 0; i < layers; ++i)
    if (count > 0 ? i >= layers - count : i < -count)
      for (const auto& module : modules) all.push_back(text(".", i, ".", module == "all" ? "" : module));
  return all;
}

class TrainedLayersTest : public InOwnFolder {
 protected:
  TrainedLayersTest() : InOwnFolder(folder_in_memory()) {
    write("run.yaml",
          "training_config: {training_iters: 6, eval_iters: 0, output_dir: run, num_threads: 1, tensorboard: false}\n"
          "model_config: {num_layers: 3, hidden_size: 16, num_attention_heads: 4, seq_length: 8, vocab_size: 64}\n"
          "optimizer_config: {learning_rate: 1e-2, lr_decay_style: constant}\n"
          "dataset_config: {dataset_type: mock, batch_size: 2, global_batch_size: 4}\n");
  }
  static Recipe read(const Lines& sets) { return read_recipe("run.yaml", sets, Registries{}); }
  static std::string refused(const Lines& sets) {
    return story_of([&] { read(sets); });
  }
  static Lines trained(const Lines& sets) {
    Lines names;
    const auto model = build_model(read(sets), nullptr);
    for (const auto* parameter : model->parameters())
      if (parameter->trained) names.push_back(parameter->name);
    return names;
  }
};

Lines some_of(const Lines& all, std::mt19937& random) {
  Lines some;
  for (const auto& one : all)
    if (random() % 2 == 0) some.push_back(one);
  return some;
}

std::string list_of(const Lines& items) {
  std::string all;
  for (const auto& item : items) all += (all.empty() ? "" : ", ") + item;
  return "[" + all + "]";
}

TEST_F(TrainedLayersTest, AreThoseOfTheRuleOfSubstrings) {
  const auto seed = std::random_device{}();
  std::mt19937 random(seed);
  for (int round = 0; round < 12; ++round) {
    const int layers = 1 + static_cast<int>(random() % 13), count = static_cast<int>(random() % 31) - 15;
    auto modules = some_of({"mlp", "self_attn", "input_layernorm", "post_attention_layernorm", "all"}, random);
    const auto extra = some_of({"embed_tokens", "norm", "lm_head"}, random);
    if (modules.empty()) modules = {"mlp"};
    const auto wanted = wanted_in_names(layers, count, modules, extra);
    Lines expected;
    for (const auto& one : parameters_of_llama(layers))
      if (std::any_of(one.theirs.begin(), one.theirs.end(), [&](const auto& name) {
            return std::any_of(wanted.begin(), wanted.end(),
                               [&](const auto& part) { return name.find(part) != std::string::npos; });
          }))
        expected.push_back(one.ours);
    const auto sets =
        layers_of_llama + Lines{text(m, "num_layers=", layers), text(t, "freeze_trainable_layers=", count),
                                t + "freeze_trainable_modules=" + list_of(modules),
                                t + "freeze_extra_modules=" + list_of(extra)};
    SCOPED_TRACE(text("seed ", seed, ", round ", round, ", ", list_of(sets)));
    if (expected.empty()) {
      EXPECT_TRUE(says(refused(sets), "the run trains nothing"));
      continue;
    }
    auto found = trained(sets);
    std::sort(found.begin(), found.end());
    std::sort(expected.begin(), expected.end());
    EXPECT_EQ(found, expected);
  }
}

TEST_F(TrainedLayersTest, HaveTheNamesOfTheModelsOwnFamily) {
  EXPECT_EQ(
      trained({t + "freeze_trainable_layers=-1", t + "freeze_trainable_modules=[ln_1, attn]",
               t + "freeze_extra_modules=[wpe]"}),
      (Lines{"embedding.position_embeddings.weight", "decoder.layers.0.input_layernorm.weight",
             "decoder.layers.0.input_layernorm.bias", "decoder.layers.0.self_attention.linear_qkv.weight",
             "decoder.layers.0.self_attention.linear_qkv.bias", "decoder.layers.0.self_attention.linear_proj.weight",
             "decoder.layers.0.self_attention.linear_proj.bias"}));
}

/// The number of an expert is not that of a layer.
TEST_F(TrainedLayersTest, OfExpertsAreThoseOfTheirLayer) {
  const Lines experts = layers_of_llama + Lines{m + "num_experts=4"};
  const auto names = trained(experts + Lines{t + "freeze_trainable_layers=1"});
  EXPECT_FALSE(names.empty());
  for (const auto& name : names) EXPECT_EQ(name.find("decoder.layers.2."), 0U) << name;
  const auto count = std::count_if(names.begin(), names.end(),
                                   [](const auto& name) { return name.find(".local_experts.") != std::string::npos; });
  EXPECT_EQ(count, 8);
}

TEST_F(TrainedLayersTest, StandBesideAdaptersAndPatterns) {
  const auto names = trained(layers_of_llama +
                             Lines{t + "freeze_trainable_layers=1", t + "freeze_trainable_modules=[input_layernorm]",
                                   t + "trainable_parameters=['output_layer\\.weight']",
                                   t + "frozen_parameters=['.*lora_A.*']", "lora_config.use_lora=true",
                                   "lora_config.target_modules=[linear_fc2]", "lora_config.layers_to_transform=[0]"});
  EXPECT_EQ(names, (Lines{"decoder.layers.0.mlp.linear_fc2.lora_B.weight", "decoder.layers.2.input_layernorm.weight",
                          "output_layer.weight"}));
}

TEST_F(TrainedLayersTest, ThatAreNoneAreRefusedWithTheNamesThatAre) {
  const auto story = refused(layers_of_llama + Lines{t + "freeze_trainable_layers=2",
                                                     t + "freeze_trainable_modules=[mlp, self_attention]",
                                                     t + "freeze_extra_modules=[embed_tokens, wte]"});
  EXPECT_TRUE(says(story,
                   "'self_attention' is no module of a layer of this model; give all, or some of input_layernorm, "
                   "mlp, post_attention_layernorm, self_attn"))
      << story;
  EXPECT_TRUE(says(story,
                   "'wte' is no module outside of the layers of this model; give some of embed_tokens, lm_head, "
                   "norm"))
      << story;
  EXPECT_FALSE(says(story, "'mlp'")) << story;
  EXPECT_FALSE(says(story, "'embed_tokens'")) << story;
  EXPECT_TRUE(says(refused({t + "freeze_trainable_layers=0"}), "the run trains nothing"));
}

TEST_F(TrainedLayersTest, FreezingAllTrainsOnlyWhatIsAdded) {
  const auto story = refused({t + "freeze_all_layers=true"});
  EXPECT_TRUE(says(story, "--set training_config.freeze_all_layers")) << story;
  EXPECT_TRUE(says(story, "the run trains nothing")) << story;
  EXPECT_EQ(trained({t + "freeze_all_layers=true", t + "trainable_parameters=['.*final_layernorm.bias']"}),
            Lines{"decoder.final_layernorm.bias"});
  const auto names = trained({t + "freeze_all_layers=true", "lora_config.use_lora=true",
                              "lora_config.target_modules=[linear_fc2]", "lora_config.layers_to_transform=[0]"});
  EXPECT_EQ(names,
            (Lines{"decoder.layers.0.mlp.linear_fc2.lora_A.weight", "decoder.layers.0.mlp.linear_fc2.lora_B.weight"}));
}

}  // namespace
}  // namespace tessera::recipe
