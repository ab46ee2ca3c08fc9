// Runs that start from an adapter folder of PEFT (lora_config.adapter).
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "framework/checkpoint/safetensors.h"
#include "framework/interop/hugging_face/peft_adapter.h"
#include "framework/interop/hugging_face/peft_reader.h"
#include "framework/recipe/build.h"
#include "framework/training/loop/trainer.h"
#include "framework/training/saving/resume.h"
#include "framework/training/state/model_state.h"
#include "tests/interop/hugging_face/recorded.h"
#include "tests/own_folder.h"
#include "tests/recipe/groups.h"
#include "tests/story.h"

namespace tessera::hugging_face {
namespace {

namespace fs = std::filesystem;
using recipe::Lines;
using recipe::operator+;

const fs::path tuning = TESTS_DATA "/finetune";  // made by PEFT

recipe::Registries with_adapters() {
  auto all = registries();
  all.adapters = std::make_shared<PeftReader>();
  return all;
}

class AdapterStart : public InOwnFolder {
 protected:
  /// A recipe that starts from the recorded adapter `name`, with these lines in lora_config.
  static void write_recipe(const std::string& name, const std::string& lora, const std::string& adapter = "") {
    const auto base = tuning / "bases" / name.substr(0, name.find('_')) / "hf";
    const auto folder = adapter.empty() ? (tuning / "lora" / name / "adapter").string() : adapter;
    write("run.yaml",
          "training_config: {training_iters: 2, eval_iters: 0, output_dir: run, num_threads: 1, tensorboard: false, "
          "save_interval: 2, load_checkpoint: " +
              base.string() +
              "}\nmodel_config: {seq_length: 8}\ndataset_config: {dataset_type: mock, batch_size: 2}\n"
              "optimizer_config: {learning_rate: 1e-2, lr_decay_style: constant}\nlora_config:\n  use_lora: true\n  "
              "adapter: " +
              folder + "\n" + lora);
  }
  static recipe::Recipe read(const Lines& sets = {}) { return recipe::read_recipe("run.yaml", sets, with_adapters()); }
  static std::string refused(const Lines& sets = {}) {
    return story_of([&] { read(sets); });
  }
  using Tensors = std::map<std::string, std::vector<float>>;
  /// What is trained when the run of run.yaml begins.
  static Tensors started(const Lines& sets = {}) {
    auto setup = recipe::build(read(sets));
    training::ModelState state(setup.model.first(), setup.optimization.optimizer.get());
    kernels::Threads threads(1);
    training::restore(setup, state, threads);
    Tensors all;
    for (const auto& range : state.trained_ranges())
      all[range.name].assign(range.tensor.floats().begin(), range.tensor.floats().end());
    return all;
  }
  static std::string train(const Lines& sets = {}) {
    testing::internal::CaptureStdout();
    const auto error = story_of([&] { training::train(recipe::build(read(sets)), training::StopSignal{}); });
    return testing::internal::GetCapturedStdout() + error;
  }
  static std::vector<float> values(const checkpoint::WeightSource& source, const std::string& name) {
    std::vector<float> out(static_cast<std::size_t>(source.shape(name).elements()));
    source.read(name, Tensor(std::span(out), source.shape(name)));
    return out;
  }
  static PeftAdapter recorded(const std::string& name) {
    const options::Mappings mappings;
    const HuggingFaceModel base(tuning / "bases" / name.substr(0, name.find('_')) / "hf", mappings);
    WeightShapes shapes;
    for (const auto& weight : base.names()) shapes.emplace(weight, base.shape(weight));
    return {tuning / "lora" / name / "adapter", base.table(), shapes, mappings};
  }
  /// A copy of a recorded adapter without the tensors whose names contain `words`.
  static std::string copy_without(const std::string& name, const std::string& words) {
    const auto from = tuning / "lora" / name / "adapter";
    fs::create_directory("changed");
    fs::copy_file(from / "adapter_config.json", "changed/adapter_config.json");
    const checkpoint::SafetensorsReader file(from / "adapter_model.safetensors");
    std::map<std::string, Tensor> tensors;
    for (const auto& one : file.names())
      if (!says(one, words)) tensors[one] = file.tensor(one);
    checkpoint::write_safetensors("changed/adapter_model.safetensors", tensors);
    return "changed";
  }
};

const std::string llama_qv = "  lora_rank: 4\n  lora_alpha: 8\n  target_modules: [q_proj, v_proj]\n";
const std::string of_lora = "lora_config.";
/// What config.json says of the base, for a run that does not begin with its folder.
const Lines of_llama = {recipe::m + "num_layers=3",          recipe::m + "hidden_size=32",
                        recipe::m + "num_attention_heads=4", recipe::m + "group_query_attention=true",
                        recipe::m + "num_query_groups=2",    recipe::m + "ffn_hidden_size=72",
                        recipe::m + "vocab_size=112",        recipe::m + "hidden_act=swiglu",
                        recipe::m + "normalization=RMSNorm", recipe::m + "position_embedding_type=rope",
                        recipe::m + "add_bias_linear=false", recipe::m + "untie_embeddings_and_output_weights=true",
                        recipe::m + "hidden_dropout_rate=0", recipe::m + "attention_dropout_rate=0"};

TEST_F(AdapterStart, TheTrainedTensorsAreThoseOfTheFolder) {
  const std::map<std::string, std::string> all = {
      {"llama_qv", llama_qv},
      {"gpt2_c_attn", "  lora_rank: 4\n  lora_alpha: 8\n  target_modules: [linear_qkv]\n"},
      {"qwen2_tied_vocabulary",
       "  lora_rank: 4\n  lora_alpha: 8\n  target_modules: [up_proj, v_proj]\n"
       "  modules_to_save: [embed_tokens, lm_head]\n"}};
  for (const auto& [name, lora] : all) {
    SCOPED_TRACE(name);
    write_recipe(name, lora);
    const auto adapter = recorded(name);
    const auto there = started();
    std::vector<std::string> names;
    for (const auto& [tensor, elements] : there) {
      names.push_back(tensor);
      EXPECT_EQ(elements, values(adapter, tensor)) << tensor;
    }
    EXPECT_EQ(names, adapter.names());
  }
}

TEST_F(AdapterStart, OfAFusedBiasOnlyThePartsWithAdaptersAreTrained) {
  const std::string name = "qwen2_bias_lora_only";
  write_recipe(name,
               "  lora_rank: 4\n  lora_alpha: 8\n  target_modules: [gate_proj, q_proj, v_proj]\n  bias: lora_only\n");
  const auto adapter = recorded(name);
  const options::Mappings mappings;
  const HuggingFaceModel base(tuning / "bases/qwen2/hf", mappings);
  const auto before = started();
  ASSERT_TRUE(says(train(), "no error"));
  const auto after = checkpoint::Checkpoint::open("run/checkpoints/network_iter_0000002");
  const auto model = recipe::build_model(read(), nullptr);
  int biases = 0;
  for (const auto* parameter : model->parameters()) {
    if (!parameter->trained || !parameter->name.ends_with(".bias")) continue;
    ++biases;
    const auto& bias = parameter->name;
    auto of_base = values(base, bias), start = of_base;
    adapter.read(bias, Tensor(std::span(start), base.shape(bias)));  // writes its own rows
    EXPECT_EQ(before.at(bias), start);
    const auto trained = values(checkpoint::CheckpointWeights(after), bias);
    std::set<std::size_t> frozen;
    for (const auto& [first, count] : parameter->frozen_elements)
      for (auto i = first; i < first + count; ++i) frozen.insert(static_cast<std::size_t>(i));
    EXPECT_FALSE(frozen.empty());
    for (std::size_t i = 0; i < trained.size(); ++i)
      EXPECT_EQ(trained[i] == of_base[i], frozen.contains(i)) << bias << " " << i;
  }
  EXPECT_EQ(biases, 2);
}

TEST_F(AdapterStart, EachDifferenceFromTheFolderIsToldAtItsLine) {
  write_recipe("llama_qv",
               "  lora_rank: 8\n  lora_alpha: 16\n  use_rslora: true\n  target_modules: [q_proj, o_proj]\n"
               "  modules_to_save: [lm_head]\n");
  const auto all = refused();
  for (const char* words :
       {"run.yaml:8: the adapter in ", "has lora_rank 4, the recipe 8", "run.yaml:9: the adapter in ",
        "has lora_alpha 8, the recipe 16", "run.yaml:10: ", "has use_rslora false, the recipe true", "run.yaml:11: ",
        "has the adapter of 'decoder.layers.0.self_attention.linear_qkv.v_proj' and 2 more, which the recipe does not "
        "train, and has no adapter of 'decoder.layers.0.self_attention.linear_proj' and 2 more",
        "run.yaml:12: ", "has no parameter 'output_layer.weight', which the recipe trains"})
    EXPECT_TRUE(says(all, words)) << words << "\n" << all;
  write_recipe("llama_qv", llama_qv);
  EXPECT_TRUE(says(refused({of_lora + "rank_pattern={v_proj: 3}"}), "has rank 4, the recipe 3"));
  EXPECT_TRUE(says(refused({of_lora + "alpha_pattern={v_proj: 3}"}), "has the scale 2, the recipe 0.75"));
  EXPECT_TRUE(says(refused({of_lora + "target_modules=[linear_qkv]"}),
                   "linear_qkv.q_proj' and 5 more, which the recipe does not"));
}

TEST_F(AdapterStart, HowOptionsAreWrittenDoesNotCount) {
  write_recipe("llama_qv",
               "  lora_rank: 2\n  lora_alpha: 8\n  rank_pattern: {q_proj: 4, v_proj: 4}\n"
               "  target_modules: 'model\\.layers\\.[0-9]+\\.self_attn\\.(q|v)_proj'\n");
  EXPECT_EQ(refused(), "no error");
  write_recipe("llama_qv", "  lora_rank: 4\n  lora_alpha: 8\n  target_cells: ['.*(q_proj|v_proj)']\n");
  EXPECT_EQ(refused(), "no error");
}

TEST_F(AdapterStart, WithOtherTensorsThanTheFolderIsRefusedByName) {
  write_recipe("llama_qv", llama_qv, copy_without("llama_qv", "layers.2.self_attn.v_proj"));
  EXPECT_TRUE(says(train(), "decoder.layers.2.self_attention.linear_qkv.v_proj.lora_A.weight: is missing"));
  fs::remove_all("changed");
  write_recipe("llama_qv", llama_qv, copy_without("llama_qv", "layers.2.self_attn.v_proj.lora_B"));
  EXPECT_TRUE(says(train(), "linear_qkv.v_proj: has no lora_B"));
}

TEST_F(AdapterStart, WithoutWhatItNeedsIsRefused) {
  write_recipe("llama_qv", llama_qv);
  EXPECT_TRUE(says(refused(Lines{recipe::t + "load_checkpoint=null"} + of_llama),
                   "adapter is given, but load_checkpoint is null"));
  EXPECT_TRUE(says(train({of_lora + "adapter=nowhere"}), "nowhere has no adapter_config.json"));
  fs::create_directory("empty");
  EXPECT_TRUE(says(refused({of_lora + "adapter=empty"}), "empty has no adapter_config.json"));
}

TEST_F(AdapterStart, ARunThatContinuesNeedsTheFolderNoLonger) {
  fs::copy(tuning / "lora/llama_qv/adapter", "mine");
  write_recipe("llama_qv", llama_qv, "mine");
  ASSERT_TRUE(says(train(), "no error"));
  fs::remove_all("mine");
  const auto more = train({recipe::t + "training_iters=4"});
  EXPECT_TRUE(says(more, "no error")) << more;
  EXPECT_TRUE(says(more, "resuming from"));
  // A checkpoint with adapters of its own and a folder with others.
  write_recipe("llama_qv", llama_qv);
  const auto both =
      train(Lines{recipe::t + "load_checkpoint=run/checkpoints", recipe::t + "output_dir=other"} + of_llama);
  EXPECT_TRUE(says(both, "has adapters itself")) << both;
}

/// The layers with adapters of layer 0, without its name.
std::set<std::string> adapted_in(const recipe::Recipe& recipe) {
  std::set<std::string> all;
  const std::string begin = "decoder.layers.0.", end = ".lora_A.weight";
  const auto model = recipe::build_model(recipe, nullptr);
  for (const auto* parameter : model->parameters())
    if (parameter->name.starts_with(begin) && parameter->name.ends_with(end))
      all.insert(parameter->name.substr(begin.size(), parameter->name.size() - begin.size() - end.size()));
  return all;
}

TEST_F(AdapterStart, AllLinearIsWhatPeftMeansForTheFamilyOfTheBase) {
  const std::string qkv = "self_attention.linear_qkv", fc1 = "mlp.linear_fc1";
  const auto of = [&](const fs::path& base) {
    write("run.yaml",
          "training_config: {training_iters: 2, load_checkpoint: " + base.string() +
              "}\nmodel_config: {seq_length: 8}\ndataset_config: {dataset_type: mock}\n"
              "optimizer_config: {learning_rate: 1e-2}\nlora_config: {use_lora: true, target_modules: all-linear}\n");
    auto all = adapted_in(read());
    EXPECT_EQ(all.erase("self_attention.linear_proj"), 1U);
    EXPECT_EQ(all.erase("mlp.linear_fc2"), 1U);
    return all;
  };
  using Names = std::set<std::string>;
  EXPECT_EQ(of(tuning / "bases/gpt2/hf"), (Names{qkv, fc1}));
  EXPECT_EQ(of(tuning / "bases/llama/hf"),
            (Names{qkv + ".q_proj", qkv + ".k_proj", qkv + ".v_proj", fc1 + ".gate_proj", fc1 + ".up_proj"}));
  EXPECT_EQ(of(families / "phi3"), (Names{qkv, fc1}));
}

}  // namespace
}  // namespace tessera::hugging_face
