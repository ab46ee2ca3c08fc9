// tessera merge, checkpoint convert --to peft, and --adapter of generate and eval.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "framework/base/files.h"
#include "framework/checkpoint/safetensors.h"
#include "framework/options/yaml.h"
#include "framework/recipe/build.h"
#include "framework/training/loop/trainer.h"
#include "tests/cli/run_program.h"
#include "tests/golden/registries.h"
#include "tests/own_folder.h"
#include "tests/recipe/small_run.h"

namespace tessera::cli {
namespace {

namespace fs = std::filesystem;

const std::string tuned_models = TESTS_DATA "/finetune", llama_base = tuned_models + "/bases/llama/hf";
const std::string adapter_of_qv = tuned_models + "/lora/llama_qv/adapter";

class AdapterCommands : public InOwnFolder {
 protected:
  AdapterCommands() : InOwnFolder(recipe::folder_in_memory()) {}

  static Outcome must_run(const std::vector<std::string>& words) {
    auto outcome = run_program(words);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome;
  }
  static void expect_refused(const std::vector<std::string>& words, const std::string& expected) {
    const auto outcome = run_program(words);
    EXPECT_NE(outcome.code, 0) << outcome.out;
    EXPECT_NE(outcome.err.find(expected), std::string::npos) << outcome.err;
  }
  /// Both files have the same tensors, to the bit.
  static void expect_same_tensors(const fs::path& a, const fs::path& b) {
    const checkpoint::SafetensorsReader first(a), second(b);
    ASSERT_EQ(first.names(), second.names());
    for (const auto& name : first.names()) {
      const auto x = first.tensor(name), y = second.tensor(name);
      ASSERT_EQ(x.shape(), y.shape()) << name;
      EXPECT_EQ(std::memcmp(x.raw().data(), y.raw().data(), x.bytes()), 0) << name;
    }
  }
  /// A copy of the recorded adapter with these target_modules, without the tensors that have `left_out` in their names.
  static void write_adapter(const fs::path& folder, const std::vector<std::string>& targets,
                            const std::string& left_out) {
    fs::create_directory(folder);
    auto config = nlohmann::json::parse(read_file(adapter_of_qv + "/adapter_config.json"));
    config["target_modules"] = targets;
    write((folder / "adapter_config.json").string(), config.dump());
    const checkpoint::SafetensorsReader file(adapter_of_qv + "/adapter_model.safetensors");
    std::map<std::string, Tensor> tensors;
    for (const auto& name : file.names())
      if (left_out.empty() || name.find(left_out) == std::string::npos) tensors.emplace(name, file.tensor(name));
    checkpoint::write_safetensors(folder / "adapter_model.safetensors", tensors);
  }
  /// Trains a recipe; its resolved options are checked as those of a file.
  static void train(const std::string& recipe, const std::vector<std::string>& sets = {}) {
    write("run.yaml", recipe);
    testing::internal::CaptureStdout();
    training::train(recipe::build(recipe::read_recipe("run.yaml", sets, golden::all_registries())),
                    training::StopSignal{});
    testing::internal::GetCapturedStdout();
  }
  static std::string run_on_llama(const std::string& lora, double rate) {
    recipe::write_token_file("data", 7);
    return text(
        "training_config: {training_iters: 2, eval_iters: 0, output_dir: run, num_threads: 1, tensorboard: false, ",
        "load_checkpoint: ", llama_base, "}\nmodel_config: {seq_length: 8}\nlora_config: {use_lora: true, ", lora,
        "}\noptimizer_config: {learning_rate: ", rate, ", lr_decay_style: constant}\n",
        "dataset_config: {data_path: data, split: \"100,0,0\", batch_size: 2}\n");
  }
};

TEST_F(AdapterCommands, MergingGivesTheRecordedWeightsAndNoOthers) {
  for (const std::string name : {"gpt2_c_attn", "llama_qv", "qwen2_bias_lora_only", "qwen2_tied_vocabulary"}) {
    SCOPED_TRACE(name);
    const auto base = tuned_models + "/bases/" + name.substr(0, name.find('_')) + "/hf";
    const auto said = must_run({"merge", tuned_models + "/lora/" + name + "/adapter", name, "--base", base});
    EXPECT_NE(said.out.find("logits differ from the model with adapters by"), std::string::npos) << said.out;
    const checkpoint::SafetensorsReader written(name), before(base),
        recorded(tuned_models + "/lora/" + name + "/merged.safetensors");
    for (const auto& one : before.names()) {
      const auto expected = recorded.has(one) ? recorded.tensor(one).floats() : before.tensor(one).floats();
      const auto found = written.tensor(one).floats();
      ASSERT_EQ(found.size(), expected.size());
      for (std::size_t i = 0; i < found.size(); ++i) {
        const auto ulp = recorded.has(one) ? std::abs(expected[i]) * std::numeric_limits<float>::epsilon() : 0.0F;
        ASSERT_NEAR(found[i], expected[i], ulp) << one << "[" << i << "]";
      }
    }
  }
}

TEST_F(AdapterCommands, AnAdapterIsMergedOnlyOnce) {
  must_run({"merge", adapter_of_qv, "merged", "--base", llama_base});
  const std::string expected = "is merged into the weights of merged already";
  expect_refused({"merge", adapter_of_qv, "twice", "--base", "merged"}, expected);
  expect_refused({"generate", "merged", "--prompt-tokens", "1 2", "--adapter", "a=" + adapter_of_qv}, expected);
  must_run({"checkpoint", "convert", "--from", "hf", "--to", "tessera", "merged", "native"});
  expect_refused({"merge", adapter_of_qv, "twice", "--base", "native"}, "is merged into the weights of native");
  EXPECT_FALSE(fs::exists("twice"));
}

TEST_F(AdapterCommands, MergingNeedsItsBase) {
  expect_refused({"merge", adapter_of_qv, "out"}, "give the folder of that model as its base");
  expect_refused({"merge", adapter_of_qv, "out", "--base", tuned_models + "/bases/gpt2/hf"},
                 "the adapter does not belong to this base model");
  expect_refused({"merge", llama_base, "out"}, "has no adapters");
  expect_refused({"merge", adapter_of_qv, "out", "--base", llama_base, "--into", "dequantised"},
                 "is for a base with weights in 4 bits");
  fs::create_directory("full");
  write("full/file", "");
  expect_refused({"merge", adapter_of_qv, "full", "--base", llama_base}, "exists and is not empty");
}

TEST_F(AdapterCommands, TensorsThatAreNotThoseOfTheOptionsAreNamedBeforeAnythingIsWritten) {
  write_adapter("less", {"q_proj", "v_proj"}, "layers.1.self_attn.q_proj");
  expect_refused({"merge", "less", "out", "--base", llama_base},
                 "decoder.layers.1.self_attention.linear_qkv.q_proj.lora_A.weight: is not in the folder");
  write_adapter("more", {"q_proj"}, "");
  expect_refused({"merge", "more", "out", "--base", llama_base},
                 "linear_qkv.v_proj.lora_A.weight: is not trained by the options of the adapter");
  EXPECT_FALSE(fs::exists("out"));
}

TEST_F(AdapterCommands, AnAdapterOfATableThatIsAlsoTheOutputLayerIsNotMerged) {
  const std::string base = tuned_models + "/bases/qwen2/hf";
  expect_refused({"merge", tuned_models + "/lora/qwen2_dora_embedding/adapter", "out", "--base", base},
                 "whose table is also the output layer of");
  EXPECT_FALSE(fs::exists("out"));
}

TEST_F(AdapterCommands, AnAdapterThatChangesNothingIsTold) {
  train(run_on_llama("lora_rank: 2, target_modules: [o_proj]", 0));  // B stays zero
  must_run({"checkpoint", "convert", "--from", "tessera", "--to", "peft", "run", "still"});
  const std::string expected = "still: a factor of every layer is zero, so the model computes what its base does";
  for (const auto& words : {std::vector<std::string>{"merge", "still", "out", "--base", llama_base},
                            {"generate", llama_base, "--prompt-tokens", "1 2", "--adapter", "a=still"}}) {
    const auto outcome = must_run(words);
    EXPECT_NE((outcome.out + outcome.err).find(expected), std::string::npos) << outcome.out << outcome.err;
  }
  const auto outcome = must_run({"merge", adapter_of_qv, "merged", "--base", llama_base});
  EXPECT_EQ((outcome.out + outcome.err).find("is zero"), std::string::npos);
}

TEST_F(AdapterCommands, RoundingToSixteenBitsIsSaid) {
  const auto said = must_run({"merge", adapter_of_qv, "out", "--base", llama_base, "--dtype", "bfloat16"});
  EXPECT_NE(said.out.find("which is the rounding of the weights"), std::string::npos) << said.out;
  EXPECT_EQ(checkpoint::SafetensorsReader("out").dtype("model.norm.weight"), DType::bfloat16);
}

TEST_F(AdapterCommands, ABaseInFourBitsMustBeToldIntoWhat) {
  const std::string four = TESTS_DATA "/nf4/hf_nf4";
  expect_refused({"merge", adapter_of_qv, "out", "--base", four}, "say into which to merge");
  must_run({"merge", adapter_of_qv, "values", "--base", four, "--into", "dequantised"});
  must_run({"merge", adapter_of_qv, "before", "--base", four, "--into", llama_base});
  must_run({"merge", adapter_of_qv, "plain", "--base", llama_base});
  expect_same_tensors("before/model.safetensors", "plain/model.safetensors");
  const std::string key = "model.layers.0.self_attn.k_proj.weight";  // without an adapter
  const checkpoint::SafetensorsReader dequantised(TESTS_DATA "/nf4/dequantised.safetensors"), values("values");
  const auto expected = dequantised.tensor(key), found = values.tensor(key);
  ASSERT_EQ(found.dtype(), expected.dtype());
  EXPECT_EQ(std::memcmp(found.raw().data(), expected.raw().data(), expected.bytes()), 0);
  EXPECT_FALSE(nlohmann::json::parse(read_file("values/config.json")).contains("quantization_config"));
}

TEST_F(AdapterCommands, GenerateTakesSeveralAdaptersAndGivesEachItsText) {
  const std::vector<std::string> asked = {"--prompt-tokens", "1 2 3", "--tokens", "6", "--temperature", "0"};
  const auto with = [&](std::vector<std::string> words) {
    words.insert(words.end(), asked.begin(), asked.end());
    return must_run(words).out;
  };
  must_run({"merge", adapter_of_qv, "merged", "--base", llama_base});
  const auto base = with({"generate", llama_base}), merged = with({"generate", "merged"});
  EXPECT_NE(base, merged);
  const auto both =
      with({"generate", llama_base, "--adapter", "one=" + adapter_of_qv, "--adapter", "two=" + adapter_of_qv});
  EXPECT_EQ(both, "base:\n" + base + "one:\n" + merged + "two:\n" + merged);
  expect_refused({"generate", llama_base, "--prompt-tokens", "1", "--adapter", "one"}, "expected NAME=FOLDER");
  expect_refused({"generate", llama_base, "--prompt-tokens", "1", "--adapter", "base=x"}, "give another");
  expect_refused({"generate", llama_base, "--prompt-tokens", "1", "--adapter", "a=" + adapter_of_qv, "--adapter",
                  "a=" + adapter_of_qv},
                 "is given twice");
}

TEST_F(AdapterCommands, EvalScoresTheModelWithEachAdapter) {
  recipe::write_token_file("data", 7);
  must_run({"merge", adapter_of_qv, "merged", "--base", llama_base});
  std::istringstream lines(
      must_run({"eval", llama_base, "--data", "data", "--json", "--adapter", "qv=" + adapter_of_qv}).out);
  std::string base, adapted;
  std::getline(lines, base);
  std::getline(lines, adapted);
  const auto merged = nlohmann::json::parse(must_run({"eval", "merged", "--data", "data", "--json"}).out);
  EXPECT_EQ(nlohmann::json::parse(base)["adapter"], "base");
  const auto with = nlohmann::json::parse(adapted);
  EXPECT_EQ(with["adapter"], "qv");
  EXPECT_NEAR(with["loss"].get<double>(), merged["loss"].get<double>(), 2e-6);
  EXPECT_GT(std::abs(with["loss"].get<double>() - nlohmann::json::parse(base)["loss"].get<double>()), 1e-3);
}

TEST_F(AdapterCommands, ARecordedFolderComesBackFromARunThatLearnsNothing) {
  train(run_on_llama("lora_rank: 4, lora_alpha: 8, target_modules: [q_proj, v_proj], adapter: " + adapter_of_qv, 0));
  must_run({"checkpoint", "convert", "--from", "tessera", "--to", "peft", "run", "folder"});
  expect_same_tensors("folder/adapter_model.safetensors", adapter_of_qv + "/adapter_model.safetensors");
  const auto was = nlohmann::json::parse(read_file(adapter_of_qv + "/adapter_config.json"));
  auto is = nlohmann::json::parse(read_file("folder/adapter_config.json"));
  EXPECT_EQ(is["base_model_name_or_path"], llama_base);
  is["base_model_name_or_path"] = was["base_model_name_or_path"];
  EXPECT_EQ(is, was);
}

TEST_F(AdapterCommands, ARunMergesAsTheFolderThatPeftGetsOfIt) {
  train(
      run_on_llama("lora_rank: 2, target_modules: [linear_qkv, gate_proj, linear_proj], use_rslora: true, "
                   "modules_to_save: [final_layernorm]",
                   1e-2));
  must_run({"checkpoint", "convert", "--from", "tessera", "--to", "peft", "run", "folder"});
  const auto config = nlohmann::json::parse(read_file("folder/adapter_config.json"));
  EXPECT_EQ(config["modules_to_save"], nlohmann::json::parse(R"(["model.norm"])"));
  EXPECT_EQ(config["target_modules"].size(), 15U) << "q, k, v, gate and o of three layers";
  EXPECT_EQ(config["lora_alpha"], 32);
  must_run({"merge", "run", "of_run"});
  must_run({"merge", "folder", "of_folder"});
  expect_same_tensors("of_run/model.safetensors", "of_folder/model.safetensors");
  // A checkpoint that has the weights of its base too.
  train(run_on_llama("lora_rank: 2, target_modules: [linear_qkv, gate_proj, linear_proj], use_rslora: true, "
                     "modules_to_save: [final_layernorm]",
                     1e-2),
        {"training_config.output_dir=whole", "training_config.save_frozen_parameters=true"});
  must_run({"merge", "whole", "of_whole"});
  expect_same_tensors("of_run/model.safetensors", "of_whole/model.safetensors");
  expect_refused({"merge", "whole", "other", "--base", llama_base}, "has the weights of its base");
  expect_refused({"merge", "folder", "other", "--base", "whole"}, "has adapters itself");
}

TEST_F(AdapterCommands, OnlyAdaptersAreWrittenForPeft) {
  expect_refused({"checkpoint", "convert", "--from", "tessera", "--to", "peft", llama_base, "folder"},
                 "has no adapters");
  expect_refused({"checkpoint", "convert", "--from", "hf", "--to", "peft", llama_base, "folder"},
                 "adapters are written from a run of Tessera");
  train(run_on_llama("lora_rank: 2, target_modules: [q_proj]", 1e-2));
  expect_refused({"checkpoint", "convert", "--from", "tessera", "--to", "hf", "run", "folder"},
                 "`tessera merge` writes");
  expect_refused({"checkpoint", "convert", "--from", "tessera", "--to", "peft", "run", "folder", "--dtype", "bfloat16"},
                 "--dtype is not for --to peft");
  fs::create_directory("folder_tmp");
  write("folder_tmp/notes.txt", "of the user");
  expect_refused({"checkpoint", "convert", "--from", "tessera", "--to", "peft", "run", "folder"},
                 "folder_tmp: is there already");
  EXPECT_EQ(read_file("folder_tmp/notes.txt"), "of the user");
}

TEST_F(AdapterCommands, AnAdapterConfigBecomesAPieceOfARecipe) {
  const auto said = must_run({"convert", adapter_of_qv, "-o", "piece.yaml"});
  const auto keys = nlohmann::json::parse(read_file(adapter_of_qv + "/adapter_config.json"));
  for (const auto& [key, value] : keys.items())
    EXPECT_NE((said.out + said.err).find("  " + key + " "), std::string::npos) << key;
  const auto alone = run_on_llama("lora_rank: 4, lora_alpha: 8, target_modules: [q_proj, v_proj]", 1e-2);
  write("run.yaml", "base: piece.yaml\n" + alone.substr(0, alone.find("lora_config")) +
                        alone.substr(alone.find("optimizer_config")));
  const auto recipe = recipe::read_recipe("run.yaml", {}, golden::all_registries());
  EXPECT_TRUE(recipe.lora.use_lora);
  EXPECT_EQ(recipe.lora.lora_rank, 4);
  EXPECT_EQ(recipe.lora.lora_alpha, 8);
  EXPECT_EQ(recipe.lora.adapter, adapter_of_qv);
  EXPECT_EQ(recipe.lora.target_modules->names, (std::vector<std::string>{"q_proj", "v_proj"}));
  write("adapter_config.json", R"({"r": 2, "rank_pattern": {"model\\.layers\\.1\\..*": 3}, "target_modules": "q_.*"})");
  must_run({"convert", "adapter_config.json", "-o", "pattern.yaml"});
  const auto pattern = options::read_yaml("pattern.yaml");
  EXPECT_EQ(pattern.at("lora_config.rank_pattern")->fields.at(0).name, "model\\.layers\\.1\\..*");
  EXPECT_EQ(pattern.at("lora_config.adapter"), nullptr);
  write("adapter_config.json", R"({"peft_type": "LORA", "use_qalora": true, "lora_bias": true})");
  expect_refused({"convert", "adapter_config.json"}, "use_qalora is true");
  expect_refused({"convert", "adapter_config.json"}, "lora_bias is true");
  expect_refused({"convert", adapter_of_qv, "--to", "megatron"}, "leave --to out");
}

}  // namespace
}  // namespace tessera::cli
