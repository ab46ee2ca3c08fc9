#include "tests/golden/runs.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include "framework/base/files.h"
#include "tests/own_folder.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Verdict = CaseResult::Verdict;

/// The small recorded runs, copied so that they can be altered.
class RecordedRuns : public InOwnFolder {
 protected:
  RecordedRuns() {
    fs::copy(TESTS_DATA "/megatron", ".", fs::copy_options::recursive);
    for (const auto& entry : fs::recursive_directory_iterator("."))
      fs::permissions(entry, fs::perms::owner_write, fs::perm_options::add);
  }
  template <class Change>
  static void change(const std::string& file, Change change_it) {
    auto json = Json::parse(read_file(file));
    change_it(json);
    std::ofstream(file) << json;
  }
  static CaseResult judged(const std::string& run) { return run_training_case("training/" + run).at(0); }
};

TEST_F(RecordedRuns, ALossThatIsAnotherFails) {
  change("training/gpt_sgd/trace.json", [](Json& trace) { trace[4]["losses"]["lm loss"] = 6.3; });
  const auto result = judged("gpt_sgd");
  EXPECT_EQ(result.verdict, Verdict::failed);
  EXPECT_NE(result.summary.find("loss of iteration 5"), std::string::npos) << result.summary;
}

/// `from` in the recorded log of a run becomes `to`, and the run fails by that name.
void expect_line_fails(const std::string& run, const std::string& from, const std::string& to,
                       const std::string& name) {
  const auto file = "training/" + run + "/log.rank0.txt";
  auto log = read_file(file);
  const auto at = log.find(from);
  ASSERT_NE(at, std::string::npos) << from;
  std::ofstream(file) << log.replace(at, from.size(), to);
  const auto result = run_training_case("training/" + run).at(0);
  EXPECT_EQ(result.verdict, Verdict::failed);
  EXPECT_NE(result.summary.find(name), std::string::npos) << result.summary;
}

TEST_F(RecordedRuns, ALossOfRoutersThatIsAnotherFails) {
  expect_line_fails("moe", "load_balancing_loss: 1.037030E+00", "load_balancing_loss: 1.037330E+00",
                    "load_balancing_loss of iteration 2");
}

TEST_F(RecordedRuns, ALossOfMultiTokenPredictionThatIsAnotherFails) {
  expect_line_fails("mtp", "mtp_1 loss: 6.654158E+00", "mtp_1 loss: 6.656158E+00", "mtp_1_loss of iteration 3");
}

TEST_F(RecordedRuns, ARateThatIsAnotherInTheNinthDigitFails) {
  change("training/gpt_sgd/trace.json", [](Json& trace) { trace[2]["lr"] = {0.005000000001, 0.005}; });
  EXPECT_EQ(judged("gpt_sgd").verdict, Verdict::failed);
}

TEST_F(RecordedRuns, OtherBatchesFail) {
  change("training/gpt/arguments.json", [](Json& arguments) {
    for (auto& word : arguments["flags"])
      if (word == "1234") word = "1235";
  });
  const auto result = judged("gpt");
  EXPECT_EQ(result.verdict, Verdict::failed);
  EXPECT_NE(result.summary.find("chunk0."), std::string::npos) << result.summary;
}

TEST_F(RecordedRuns, AnOverflowThatWasNotThereFails) {
  change("training/gpt_fp16/trace.json", [](Json& trace) {
    trace[9]["skipped"] = 1;
    trace[9]["grad_norm"] = nullptr;
  });
  const auto result = judged("gpt_fp16");
  EXPECT_EQ(result.verdict, Verdict::failed);
  EXPECT_NE(result.summary.find("skipped of iteration 10"), std::string::npos) << result.summary;
}

TEST_F(RecordedRuns, WhatIsNotBuiltIsNotSupportedByName) {
  change("training/gpt/arguments.json", [](Json& arguments) { arguments["flags"].push_back("--heads-on-fire"); });
  auto result = judged("gpt");
  EXPECT_EQ(result.verdict, Verdict::not_supported);
  EXPECT_NE(result.summary.find("--heads-on-fire"), std::string::npos) << result.summary;
  change("training/gpt_sgd/arguments.json", [](Json& arguments) { arguments["world_size"] = 3; });
  result = judged("gpt_sgd");
  EXPECT_EQ(result.verdict, Verdict::not_supported);
  EXPECT_NE(result.summary.find("3"), std::string::npos) << result.summary;
}

TEST_F(RecordedRuns, WithoutWeightsBatchesAndRatesAreCompared) {
  fs::remove("training/gpt/initial.rank0.safetensors");
  const auto result = judged("gpt_sgd");
  EXPECT_EQ(result.verdict, Verdict::passed);
  EXPECT_NE(result.summary.find("no weights are recorded"), std::string::npos) << result.summary;
}

/// The files of ranks 0 and 1 in each other's place.
void swap_ranks(const std::string& run) {
  const auto file = [&](int rank) {
    return "training/" + run + "/initial.rank" + std::to_string(rank) + ".safetensors";
  };
  fs::rename(file(0), "kept");
  fs::rename(file(1), file(0));
  fs::rename("kept", file(1));
}

TEST_F(RecordedRuns, PartsOfTensorRanksInTheWrongOrderFail) {
  EXPECT_EQ(judged("llama_tp2").verdict, Verdict::passed);
  swap_ranks("llama_tp2");
  const auto result = judged("llama_tp2");
  EXPECT_EQ(result.verdict, Verdict::failed);
  EXPECT_NE(result.summary.find("loss of iteration 1 "), std::string::npos) << result.summary;
}

TEST_F(RecordedRuns, StagesInTheWrongOrderFail) {
  swap_ranks("gpt_pp2");
  const auto result = judged("gpt_pp2");
  EXPECT_EQ(result.verdict, Verdict::failed);
  EXPECT_NE(result.summary.find("loss of iteration 1 "), std::string::npos) << result.summary;
}

TEST_F(RecordedRuns, ANormOfManyProcessesThatIsAnotherFails) {
  change("training/gpt_bf16_dp2_distributed_optimizer/trace.json",
         [](Json& steps) { steps[7]["grad_norm"] = steps[7]["grad_norm"].get<double>() * 1.03; });
  const auto result = judged("gpt_bf16_dp2_distributed_optimizer");
  EXPECT_EQ(result.verdict, Verdict::failed);
  EXPECT_NE(result.summary.find("grad_norm of iteration 8"), std::string::npos) << result.summary;
}

TEST_F(RecordedRuns, TheSummaryNamesWhatIsRecordedAndNotCompared) {
  const fs::path run = "training/gpt_bf16_dp2_distributed_optimizer";
  fs::copy_file("training/gpt/gradients.rank0.safetensors", run / "gradients.rank0.safetensors");
  const auto result = judged("gpt_bf16_dp2_distributed_optimizer");
  EXPECT_EQ(result.verdict, Verdict::passed) << result.summary;
  EXPECT_NE(result.summary.find("not compared: gradients (each replica has a shard of the sum)"), std::string::npos)
      << result.summary;
}

TEST_F(RecordedRuns, OtherWeightsInTheEndFail) {
  const fs::path kept = "training/llama_tp2/checkpoint/iter_0000010";
  fs::rename(kept / "mp_rank_00", kept / "other");
  fs::rename(kept / "mp_rank_01", kept / "mp_rank_00");
  fs::rename(kept / "other", kept / "mp_rank_01");
  const auto result = judged("llama_tp2");
  EXPECT_EQ(result.verdict, Verdict::failed);
  EXPECT_EQ(result.summary.rfind("weight ", 0), 0U) << result.summary;
}

TEST_F(RecordedRuns, AProgramThatFailsIsToldWithWhatItSaid) {
  auto programs = golden::Programs::built();
  programs.tessera = "/bin/false";
  const auto result = run_training_case("training/gpt_tp2_sp", programs).at(0);
  EXPECT_EQ(result.verdict, Verdict::failed);
  EXPECT_NE(result.summary.find("ended with exit code"), std::string::npos) << result.summary;
}

TEST_F(RecordedRuns, WeightsOfSomeRanksAloneAreNotEnough) {
  fs::remove("training/llama_tp2/initial.rank1.safetensors");
  const auto result = judged("llama_tp2");
  EXPECT_EQ(result.verdict, Verdict::passed);
  EXPECT_NE(result.summary.find("no weights are recorded"), std::string::npos) << result.summary;
}

}  // namespace
}  // namespace tessera
