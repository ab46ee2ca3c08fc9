#include "framework/reporting/metrics.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cmath>
#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>

#include "framework/base/error.h"
#include "framework/options/limits.h"
#include "tests/own_folder.h"

namespace tessera::reporting {
namespace {

class MetricsFileTest : public InOwnFolder {
 protected:
  static StepRecord record(std::int64_t iteration) {
    StepRecord r;
    r.iteration = iteration;
    r.consumed_samples = 8 * iteration;
    r.loss = 10.0 / 3 + static_cast<double>(iteration);
    r.grad_norm = 0.1;
    r.learning_rate = 1e-5;
    r.weight_decay = 0.01;
    r.step_seconds = 0.25;
    r.tokens_per_second = 4096;
    r.memory = {
        .weights = 123456789000, .gradients = 3, .optimizer = 4, .activations = 2, .workspace = 1, .messages = 2};
    return r;
  }
  static std::string content() {
    std::ifstream file("metrics.jsonl");
    return {std::istreambuf_iterator<char>(file), {}};
  }
  static std::vector<nlohmann::json> lines() {
    std::vector<nlohmann::json> all;
    std::ifstream file("metrics.jsonl");
    for (std::string line; std::getline(file, line);) all.push_back(nlohmann::json::parse(line));
    return all;
  }
  static void write_steps(int first, int last, std::int64_t resume) {
    MetricsFile file("metrics.jsonl", {resume});
    for (int i = first; i <= last; ++i) file.step(record(i));
  }
};

TEST_F(MetricsFileTest, ALineHoldsTheStepInFullPrecision) {
  write_steps(1, 1, 0);
  EXPECT_EQ(
      content(),
      R"({"iteration": 1, "consumed_samples": 8, "loss": 4.333333333333334, "grad_norm": 0.1, "learning_rate": )"
      R"(1e-05, "weight_decay": 0.01, "loss_scale": 1.0, "skipped": false, "sample_chain": 0, "step_seconds": 0.25, )"
      R"("tokens_per_second": 4096.0, "data_wait_seconds": 0.0, "memory_bytes": 123456789012, "weight_bytes": 123456789000, "gradient_bytes": 3, "optimizer_bytes": 4, "activation_bytes": 2, "workspace_bytes": 1, "message_bytes": 2})"
      "\n");
  EXPECT_EQ(lines()[0]["loss"].get<double>(), record(1).loss);  // to the bit
}

TEST_F(MetricsFileTest, ALineHasTheLossesOfRoutersAndPredictions) {
  MetricsFile file("metrics.jsonl", {0});
  auto step = record(1);
  const std::vector<double> predictions(options::most_predictions, 1.0 / 3);
  step.load_balancing_loss = 1.25;
  step.z_loss = 0;
  step.prediction_losses = predictions;
  step.num_zeros = 1.0 / 3;
  step.params_norm = 1.0 / 3;
  step.tokens_per_sample = 1.0 / 3;
  file.step(step);
  const auto line = lines().at(0);
  EXPECT_EQ(line["load_balancing_loss"], 1.25);
  EXPECT_EQ(line["z_loss"], 0);
  EXPECT_EQ(line["mtp_1_loss"], 1.0 / 3);
  EXPECT_EQ(line["mtp_8_loss"], 1.0 / 3);
  EXPECT_EQ(line["tokens_per_sample"], 1.0 / 3);
}

TEST_F(MetricsFileTest, ALineHasTheRoutingOfEachLayer) {
  std::vector<RoutingRecord> layers(400);  // of the longest numbers
  for (auto& layer : layers) {
    layer.has_experts = true;
    layer.least = layer.most = options::most_tokens_known;
    layer.least_load = layer.most_load = layer.dropped = layer.gap = -1.0 / 3 * 1e-300;
  }
  layers[0] = {};
  layers[1].gap = INFINITY;
  MetricsFile file("metrics.jsonl", {0}, layers.size());
  auto step = record(1);
  step.routing = layers;
  file.step(step);
  const auto line = lines().at(0);
  for (const char* key : {"least_loaded_expert", "least_load", "most_loaded_expert", "most_load", "dropped_share",
                          "smallest_router_gap"}) {
    ASSERT_EQ(line[key].size(), layers.size()) << key;
    EXPECT_TRUE(line[key][0].is_null()) << key;
  }
  EXPECT_EQ(line["most_loaded_expert"][399], layers[399].most);
  EXPECT_EQ(line["most_load"][399], layers[399].most_load);
  EXPECT_EQ(line["smallest_router_gap"][399], layers[399].gap);
  EXPECT_TRUE(line["smallest_router_gap"][1].is_null());
}

TEST_F(MetricsFileTest, ALineHasTheTimesOfEachRank) {
  std::vector<double> seconds(10000, -1.0 / 3 * 1e-300);  // the longest numbers
  seconds[1] = 0.25;
  MetricsFile file("metrics.jsonl", {0}, 0, seconds.size());
  auto step = record(1);
  step.rank_times = {.fastest_seconds = 0.25, .slowest_seconds = 0.5, .slowest = 3, .seconds = seconds};
  file.step(step);
  file.step(record(2));
  EXPECT_EQ(lines().at(0)["rank_seconds"].get<std::vector<double>>(), seconds);
  EXPECT_EQ(lines()[0]["slowest_rank"], 3);
  EXPECT_FALSE(lines().at(1).contains("rank_seconds"));
}

TEST_F(MetricsFileTest, WhatIsNotFiniteBecomesNull) {
  MetricsFile file("metrics.jsonl", {0});
  auto bad = record(1);
  bad.loss = std::nan("");
  bad.grad_norm = INFINITY;
  bad.skipped = true;
  file.step(bad);
  EXPECT_TRUE(lines()[0]["loss"].is_null());
  EXPECT_TRUE(lines()[0]["grad_norm"].is_null());
  EXPECT_EQ(lines()[0]["skipped"], true);
}

TEST_F(MetricsFileTest, AnEvaluationJoinsTheObjectOfItsStep) {
  MetricsFile file("metrics.jsonl", {0});
  file.step(record(1));
  file.evaluation({1, 8, 2.5});
  file.evaluation({1, 8, 2.75, EvaluationRecord::Set::test});
  file.step(record(2));
  const auto all = lines();
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0]["validation_loss"], 2.5);
  EXPECT_EQ(all[0]["test_loss"], 2.75);
  EXPECT_EQ(all[0]["memory_bytes"], 123456789012);
  EXPECT_FALSE(all[1].contains("validation_loss"));
}

TEST_F(MetricsFileTest, ValidationSetsHaveKeysOfTheirOwn) {
  using Set = EvaluationRecord::Set;
  {
    MetricsFile file("metrics.jsonl", {0});
    file.step(record(5));
    file.evaluation({5, 40, 2.5, Set::validation, "-0", 0});
    file.evaluation({5, 40, 2.75, Set::validation, "-1", 1});
    file.evaluation({5, 40, 2.25, Set::final_validation, "-0", 0});
  }
  MetricsFile file("metrics.jsonl", {5});
  file.evaluation({5, 40, 2.375, Set::final_validation, "-1", 1});
  ASSERT_EQ(lines().size(), 1U);
  EXPECT_EQ(lines()[0]["validation_loss-0"], 2.5);
  EXPECT_EQ(lines()[0]["validation_loss-1"], 2.75);
  EXPECT_EQ(lines()[0]["final_validation_loss-0"], 2.25);
  EXPECT_EQ(lines()[0]["final_validation_loss-1"], 2.375);
  EXPECT_FALSE(lines()[0].contains("validation_loss"));
  file.evaluation({5, 40, 3.0, Set::validation, "-0", 0});  // again: no key twice in one object
  file.evaluation({5, 40, 3.5, Set::validation, "-1", 1});
  ASSERT_EQ(lines().size(), 2U);
  EXPECT_EQ(lines()[1],
            (nlohmann::json{
                {"iteration", 5}, {"consumed_samples", 40}, {"validation_loss-0", 3.0}, {"validation_loss-1", 3.5}}));
}

TEST_F(MetricsFileTest, AnEvaluationOfAStepThatWasNotLoggedStandsAlone) {
  MetricsFile file("metrics.jsonl", {0});
  file.step(record(1));
  file.evaluation({2, 16, 2.5});
  file.evaluation({2, 16, 2.5});  // asked twice: no key twice in one object
  ASSERT_EQ(lines().size(), 3U);
  EXPECT_EQ(lines()[1], (nlohmann::json{{"iteration", 2}, {"consumed_samples", 16}, {"validation_loss", 2.5}}));
}

TEST_F(MetricsFileTest, ARestartTakesBackTheStepsAfterTheRestoredOne) {
  write_steps(1, 10, 0);
  const auto undisturbed = content();
  write_steps(6, 10, 5);
  EXPECT_EQ(content(), undisturbed);
}

TEST_F(MetricsFileTest, ARestartKnowsWhichEvaluationsTheLastLineHolds) {
  {
    MetricsFile file("metrics.jsonl", {0});
    file.step(record(5));
    file.evaluation({5, 40, 2.5});
  }
  MetricsFile file("metrics.jsonl", {5});
  file.evaluation({5, 40, 2.75, EvaluationRecord::Set::test});
  ASSERT_EQ(lines().size(), 1U);
  EXPECT_EQ(lines()[0]["validation_loss"], 2.5);
  EXPECT_EQ(lines()[0]["test_loss"], 2.75);
  file.evaluation({5, 40, 3.0});
  ASSERT_EQ(lines().size(), 2U);
}

TEST_F(MetricsFileTest, ATornLastLineIsRemoved) {
  write_steps(1, 3, 0);
  const auto whole = content();
  for (const std::size_t torn : {1, 20, 100}) {
    write("metrics.jsonl", whole + whole.substr(0, torn));
    MetricsFile file("metrics.jsonl", {100});
    EXPECT_EQ(content(), whole) << torn;
  }
}

TEST_F(MetricsFileTest, WholeLinesBehindADamagedOneAreKept) {
  write_steps(1, 2, 0);
  const auto whole = content();
  write("metrics.jsonl", "{\"iterat\n\n" + whole);
  write_steps(3, 3, 2);
  EXPECT_EQ(lines().size(), 3U);
  EXPECT_EQ(content().substr(0, whole.size()), whole);
}

TEST_F(MetricsFileTest, ANewRunBeginsAnEmptyFile) {
  write_steps(1, 3, 0);
  write_steps(1, 1, 0);
  EXPECT_EQ(lines().size(), 1U);
}

TEST_F(MetricsFileTest, AFolderThatIsNotThereIsAnError) {
  EXPECT_THROW(MetricsFile("nowhere/metrics.jsonl", {0}), IoError);
}

/// While it lives, files of this process cannot grow beyond `bytes`: to the writer that is a full disk.
class SmallDisk {
 public:
  explicit SmallDisk(rlim_t bytes) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit small{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &small);
    handler_ = std::signal(SIGXFSZ, SIG_IGN);
  }
  ~SmallDisk() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  void (*handler_)(int);
};

TEST_F(MetricsFileTest, AFullDiskLosesOneLineLeavesNoTornOneAndIsTold) {
  MetricsFile file("metrics.jsonl", {0});
  file.step(record(1));
  const auto first = content();
  {
    const SmallDisk small(first.size() + 20);
    file.evaluation({1, 8, 0.12345678901234567});
    EXPECT_EQ(content(), first);
    file.step(record(2));
    EXPECT_EQ(content(), first);
  }
  EXPECT_NE(std::string(file.complaint()).find("metrics.jsonl"), std::string::npos);
  file.step(record(3));
  ASSERT_EQ(lines().size(), 2U);
  EXPECT_EQ(lines()[1]["iteration"], 3);
}

TEST_F(MetricsFileTest, EvaluationsThatWillBeRepeatedAreRemoved) {
  using Set = EvaluationRecord::Set;
  const auto evaluate = [](MetricsFile& file, std::int64_t iteration, Set set) {
    EvaluationRecord record;
    record.iteration = iteration;
    record.set = set;
    record.loss = 2;
    file.evaluation(record);
  };
  const auto write_all = [&] {
    MetricsFile file("metrics.jsonl", {0});
    for (const int i : {1, 2}) {
      file.step(record(i));
      evaluate(file, i, Set::validation);
    }
    evaluate(file, 2, Set::final_validation);
    evaluate(file, 2, Set::test);
  };
  struct Case {
    bool validation, final_evaluations;
    std::vector<std::string> keys;
  };
  for (const auto& one : {Case{true, true, {"validation_loss", "final_validation_loss", "test_loss"}},
                          Case{true, false, {"validation_loss"}}, Case{false, false, {}}}) {
    write_all();
    MetricsFile({"metrics.jsonl"}, {2, one.validation, one.final_evaluations});
    ASSERT_EQ(lines().size(), 2U);
    EXPECT_TRUE(lines()[0].contains("validation_loss")) << "of an earlier step";
    for (const auto* key : {"validation_loss", "final_validation_loss", "test_loss"})
      EXPECT_EQ(lines()[1].contains(key), std::ranges::count(one.keys, key) > 0) << key;
    EXPECT_EQ(lines()[1]["loss"], record(2).loss);
  }
}

TEST_F(MetricsFileTest, AnEvaluationOfItsOwnThatWillBeRepeatedIsRemoved) {
  write_steps(1, 1, 0);
  MetricsFile("metrics.jsonl", {3}).evaluation({3, 24, 2.0});
  ASSERT_EQ(lines().size(), 2U);
  MetricsFile({"metrics.jsonl"}, {3, true, false});
  EXPECT_EQ(lines().size(), 2U);
  MetricsFile({"metrics.jsonl"}, {3, false, false});
  EXPECT_EQ(lines().size(), 1U);
}

}  // namespace
}  // namespace tessera::reporting
