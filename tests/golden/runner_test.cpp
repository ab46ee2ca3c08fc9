#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "framework/base/files.h"
#include "framework/checkpoint/safetensors.h"
#include "tests/golden/comparison.h"
#include "tests/golden/kinds.h"
#include "tests/own_folder.h"

namespace tessera::golden {
namespace {

namespace fs = std::filesystem;
using Verdict = CaseResult::Verdict;
using RunnerTest = InOwnFolder;

CaseResult result_of(const std::vector<CaseResult>& results, const std::string& name) {
  const auto found = std::find_if(results.begin(), results.end(), [&](const auto& one) { return one.name == name; });
  return found == results.end() ? CaseResult{name, Verdict::failed, "no such result"} : *found;
}

void copy_case(const fs::path& into, const std::string& model = "gpt2") {
  fs::copy(TESTS_DATA "/models/" + model, into, fs::copy_options::recursive);
}

void change_json(const fs::path& file, const std::function<void(nlohmann::json&)>& change) {
  auto json = nlohmann::json::parse(read_file(file));
  change(json);
  std::ofstream(file) << json;
}

TEST_F(RunnerTest, AModelCasePassesUnderAnyName) {
  fs::create_directories("deep");
  copy_case("deep/whatever");
  const auto results = run_cases(".", case_kinds());
  const auto whole = result_of(results, "deep/whatever");
  EXPECT_EQ(whole.verdict, Verdict::passed) << whole.summary;
  EXPECT_NE(whole.summary.find("20 steps"), std::string::npos) << whole.summary;
  EXPECT_EQ(result_of(results, "deep/whatever/config.transformers4").verdict, Verdict::passed);
}

/// Change the first number of the last row of every line's table by a part in 1e8 (or an integer by one).
void disturb(const fs::path& file) {
  std::istringstream lines(read_file(file));
  std::ofstream out(file);
  for (std::string line; std::getline(lines, line);) {
    auto json = nlohmann::json::parse(line);
    if (json.contains("rows")) {
      auto* at = &json["rows"].back();
      while (at->is_array()) at = &at->back();
      *at = at->is_number_float() ? nlohmann::json(at->get<double>() * (1 + 1e-8) + 1e-13) : nlohmann::json(12345);
    } else {
      json.erase("error");
      json["rows"] = nlohmann::json::array();
    }
    out << json << "\n";
  }
}

TEST_F(RunnerTest, ARecordedScheduleThatDiffersFails) {
  fs::copy(TESTS_DATA "/schedule_tables", "tables");
  const auto good = run_cases(".", case_kinds());
  EXPECT_GT(good.size(), 25U);
  for (const auto& result : good) EXPECT_EQ(result.verdict, Verdict::passed) << line_of(result);
  for (const auto& entry : fs::directory_iterator("tables")) disturb(entry.path());
  for (const auto& result : run_cases(".", case_kinds())) EXPECT_EQ(result.verdict, Verdict::failed) << result.name;
}

TEST_F(RunnerTest, AScheduleWithAnUnknownFlagIsNotSupportedByName) {
  write("scheduler.jsonl",
        R"({"name": "new", "flags": "--train-iters 5 --lr 1 --lr-zigzag 3", "world_size": 1, "error": "x"})");
  const auto results = run_cases(".", case_kinds());
  ASSERT_EQ(results.size(), 1U);
  EXPECT_EQ(results[0].verdict, Verdict::not_supported);
  EXPECT_EQ(results[0].summary, "--lr-zigzag is not a flag we know");
}

TEST_F(RunnerTest, AModelThatComputesSomethingElseFails) {
  copy_case("epsilon");
  change_json("epsilon/hf/config.json", [](auto& config) { config["layer_norm_epsilon"] = 2e-5; });
  copy_case("activation");
  change_json("activation/hf/config.json", [](auto& config) { config["activation_function"] = "gelu"; });
  copy_case("decay");
  change_json("decay/curve.json", [](auto& curve) { curve["hyper_parameters"]["weight_decay"] = 0.0; });
  const auto results = run_cases(".", case_kinds());
  for (const char* name : {"epsilon", "activation", "decay"}) {
    const auto result = result_of(results, name);
    EXPECT_EQ(result.verdict, Verdict::failed) << name;
    EXPECT_NE(result.summary.find("deviates by"), std::string::npos) << result.summary;
  }
}

TEST_F(RunnerTest, ArgumentsOfExpertsAreFollowed) {
  const std::map<std::string, nlohmann::json> changes = {{"moe_aux_loss_coeff", 0.1},
                                                         {"moe_router_topk_scaling_factor", 1.5},
                                                         {"moe_router_load_balancing_type", "seq_aux_loss"},
                                                         {"moe_expert_capacity_factor", 0.5},
                                                         {"moe_z_loss_coeff", 0.01}};
  for (const auto& [name, value] : changes) {
    copy_case(name, "qwen2_moe_aux");
    change_json(name + "/arguments.json", [&, name = name, value = value](auto& json) { json[name] = value; });
  }
  copy_case("strange", "qwen2_moe_aux");
  change_json("strange/arguments.json", [](auto& json) { json["moe_experts_on_fire"] = 2; });
  const auto results = run_cases(".", case_kinds());
  for (const auto& change : changes) {
    const auto result = result_of(results, change.first);
    EXPECT_EQ(result.verdict, Verdict::failed) << change.first;
    EXPECT_NE(result.summary.find("deviates by"), std::string::npos) << result.summary;
  }
  const auto strange = result_of(results, "strange");
  EXPECT_EQ(strange.verdict, Verdict::not_supported);
  EXPECT_NE(strange.summary.find("moe_experts_on_fire"), std::string::npos) << strange.summary;
}

TEST_F(RunnerTest, PackedCasesFollowMicroBatchesAndDocuments) {
  fs::copy(TESTS_DATA "/finetune", ".", fs::copy_options::recursive);
  fs::copy("sft/qwen2_full_packed", "sft/one_micro_batch", fs::copy_options::recursive);
  change_json("sft/one_micro_batch/finetune.json", [](auto& facts) { facts["micro_batch_size"] = 4; });
  fs::copy("sft/qwen2_full_packed", "sft/one_document", fs::copy_options::recursive);
  std::map<std::string, Tensor> tensors;
  const checkpoint::SafetensorsReader batch("sft/qwen2_full_packed/batch.safetensors");
  for (const auto& name : batch.names())
    if (name != "document_ids") tensors[name] = batch.tensor(name);
  checkpoint::write_safetensors("sft/one_document/batch.safetensors", tensors);
  const auto results = run_cases("sft", case_kinds());
  const auto verdict = [&](const std::string& name) { return result_of(results, name).verdict; };
  EXPECT_EQ(verdict("one_micro_batch"), Verdict::passed) << "a loss per token does not depend on micro-batches";
  EXPECT_EQ(verdict("one_micro_batch/mean_of_means"), Verdict::failed);
  EXPECT_EQ(verdict("one_document"), Verdict::failed);
}

TEST_F(RunnerTest, ARecordedTensorThatNobodyComputesFails) {
  copy_case("case");
  std::map<std::string, Tensor> tensors;
  const checkpoint::SafetensorsReader file(TESTS_DATA "/models/gpt2/expected.safetensors");
  for (const auto& name : file.names()) tensors[name] = file.tensor(name);
  tensors["router_logits.0"] = tensors.at("loss");
  checkpoint::write_safetensors("case/expected.safetensors", tensors);
  const auto result = result_of(run_cases(".", case_kinds()), "case");
  EXPECT_EQ(result.verdict, Verdict::failed);
  EXPECT_NE(result.summary.find("router_logits.0 is recorded, but was not computed"), std::string::npos)
      << result.summary;
}

TEST_F(RunnerTest, WhatIsNotBuiltIsNotSupportedByName) {
  copy_case("experts");
  change_json("experts/hf/config.json", [](auto& config) { config["model_type"] = "mamba"; });
  fs::create_directories("strange/inside");
  write("strange/inside/record.jsonl", "{}");
  const auto results = run_cases(".", case_kinds());
  ASSERT_EQ(results.size(), 2U);
  EXPECT_EQ(results[0].verdict, Verdict::not_supported);
  EXPECT_NE(results[0].summary.find("model_type mamba is not supported"), std::string::npos) << results[0].summary;
  EXPECT_EQ(line_of(results[1]), "not supported strange/inside: no kind of case that is built recognises this folder");
  EXPECT_EQ(summary_of(results), "0 passed, 0 failed, 2 not supported");
}

TEST_F(RunnerTest, ABrokenCaseFailsAndTheOthersGoOn) {
  const std::vector<CaseKind> kinds = {
      {"broken", [](const auto& folder) { return fs::exists(folder / "a.json"); },
       [](const auto&) -> std::vector<CaseResult> { throw std::runtime_error("cannot be read"); }},
      {"good", [](const auto& folder) { return fs::exists(folder / "b.json"); },
       [](const auto&) {
         return std::vector<CaseResult>{{"one", Verdict::passed, ""}, {"two", Verdict::failed, "why"}};
       }}};
  for (const char* folder : {"x", "y"}) fs::create_directory(folder);
  write("x/a.json", "");
  write("y/b.json", "");
  std::vector<std::string> told;
  run_cases(".", kinds, [&](const auto& result) { told.push_back(line_of(result)); });
  EXPECT_EQ(told, (std::vector<std::string>{"failed x: broken: cannot be read", "passed y/one", "failed y/two: why"}));
}

TEST_F(RunnerTest, ANumberThatIsNoneIsNeverNear) {
  Comparison comparison;
  comparison.compare("x", std::nan(""), 1, 1e9);
  EXPECT_FALSE(comparison.good());
  Comparison near;
  near.compare("x", 1.5, 1, 1);
  near.compare("y", 1.1, 1, 1);
  EXPECT_TRUE(near.good());
  EXPECT_EQ(near.summary(), "worst x at 0.5 of its tolerance");
  for (int twice = 0; twice < 2; ++twice) near.not_compared("zeros (not counted)");
  near.not_compared("gradients (overflowed)");
  EXPECT_TRUE(near.good());
  EXPECT_EQ(near.summary(),
            "worst x at 0.5 of its tolerance; not compared: gradients (overflowed), zeros (not counted)");
}

}  // namespace
}  // namespace tessera::golden
