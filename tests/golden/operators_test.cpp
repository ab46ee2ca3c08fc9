#include "tests/golden/operators.h"

#include <gtest/gtest.h>

#include <fstream>

#include "framework/base/files.h"
#include "framework/checkpoint/safetensors.h"
#include "tests/own_folder.h"

namespace tessera::golden {
namespace {

namespace fs = std::filesystem;
using Verdict = CaseResult::Verdict;
using OperatorsTest = InOwnFolder;

fs::path copy_case(const std::string& name) {
  for (const char* end : {".json", ".safetensors"}) fs::copy_file(TESTS_DATA "/operators/" + name + end, name + end);
  return name + ".json";
}

CaseResult with_attribute(const std::string& name, const std::string& key, const nlohmann::json& value) {
  const auto file = copy_case(name);
  auto json = nlohmann::json::parse(read_file(file));
  json["attributes"][key] = value;
  std::ofstream(file) << json;
  return run_operator_case(file);
}

TEST_F(OperatorsTest, ARecordedOperatorPasses) {
  for (const char* name : {"rmsnorm", "attention_documents", "cross_entropy"}) {
    const auto result = run_operator_case(copy_case(name));
    EXPECT_EQ(result.verdict, Verdict::passed) << name << ": " << result.summary;
  }
}

TEST_F(OperatorsTest, AnOperatorWithAnotherAttributeFails) {
  for (const auto& result :
       {with_attribute("rmsnorm", "epsilon", 2e-5), with_attribute("attention_causal", "scale", 0.251),
        with_attribute("rotary_half", "base", 10001.0), with_attribute("adamw", "weight_decay", 0.11)}) {
    EXPECT_EQ(result.verdict, Verdict::failed) << result.name;
    EXPECT_NE(result.summary.find("deviates by"), std::string::npos) << result.summary;
  }
}

TEST_F(OperatorsTest, WhatIsNotBuiltIsNotSupportedByName) {
  const auto file = copy_case("gelu_tanh");
  auto json = nlohmann::json::parse(read_file(file));
  json["name"] = "softsign";
  std::ofstream("other.json") << json;
  fs::copy_file("gelu_tanh.safetensors", "other.safetensors");
  const auto other = run_operator_case("other.json");
  EXPECT_EQ(other.verdict, Verdict::not_supported);
  EXPECT_EQ(other.summary, "operator softsign is not built");
}

TEST_F(OperatorsTest, ARecordedTensorThatNobodyComputesFails) {
  const auto file = copy_case("swiglu");
  std::map<std::string, Tensor> tensors;
  {
    const checkpoint::SafetensorsReader all("swiglu.safetensors");
    for (const auto& name : all.names()) tensors[name] = all.tensor(name);
    tensors["out.more"] = tensors.at("out.y");
    checkpoint::write_safetensors("changed.safetensors", tensors);
  }
  fs::copy_file("swiglu.json", "changed.json");
  const auto result = run_operator_case("changed.json");
  EXPECT_EQ(result.verdict, Verdict::failed);
  EXPECT_NE(result.summary.find("out.more is recorded, but was not computed"), std::string::npos) << result.summary;
}

}  // namespace
}  // namespace tessera::golden
