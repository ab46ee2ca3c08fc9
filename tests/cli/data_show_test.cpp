// `tessera data show` prints what a step reads: compared with the batches that reach the model.
#include "framework/cli/data_show.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "framework/cli/run.h"
#include "framework/indexed/indexed_dataset.h"
#include "framework/recipe/build.h"
#include "framework/training/loop/trainer.h"
#include "tests/cli/recorder.h"
#include "tests/own_folder.h"
#include "tests/story.h"

namespace tessera::cli {
namespace {

using Lines = std::vector<std::string>;
const std::string t = "training_config.", m = "model_config.", d = "dataset_config.", p = "parallel_config.";

Lines operator+(Lines a, const Lines& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

class DataShow : public InOwnFolder {
 protected:
  DataShow() {
    plant_short_documents("data");
    write("run.yaml",
          "training_config: {training_iters: 12, log_interval: 1, eval_interval: 5, eval_iters: 2, num_threads: 1}\n"
          "model_config: {num_layers: 2, hidden_size: 16, num_attention_heads: 4, seq_length: 8}\n"
          "optimizer_config: {learning_rate: 1e-2}\n"
          "dataset_config: {data_path: data, split: \"80,10,10\", batch_size: 2, tokenizer_type: NullTokenizer, "
          "vocab_size: 63, reset_position_ids: true, reset_attention_mask: true, eod_mask_loss: true}\n");
  }

  static recipe::Recipe recipe(const Lines& sets) {
    return recipe::read_recipe("run.yaml", sets, recipe::Registries{});
  }

  void train_recorded(const Lines& sets) {
    auto setup = recipe::build(recipe(sets + Lines{t + "output_dir=run"}));
    setup.model.chunks[0] = std::make_unique<Recorder>(std::move(setup.model.chunks[0]), trained_, evaluated_);
    testing::internal::CaptureStdout();
    training::train(std::move(setup), training::StopSignal{});
    testing::internal::GetCapturedStdout();
  }

  static std::vector<Json> shown(const Lines& sets, const DataShowRequest& request) {
    return shown_samples(recipe(sets), request);
  }

  static void expect_steps(const Lines& sets, const std::string& split, std::int64_t steps,
                           const std::vector<Json>& recorded) {
    std::size_t at = 0;
    for (std::int64_t step = 1; step <= steps; ++step) {
      const auto samples = shown(sets, {.split = split, .step = step});
      for (const auto& one : samples) {
        ASSERT_LT(at, recorded.size()) << split << " step " << step;
        EXPECT_EQ(seen_by_model(one), recorded[at]) << split << " step " << step;
        EXPECT_EQ(one.at("step"), step);
        EXPECT_EQ(one.at("split"), split);
        ++at;
      }
    }
    EXPECT_EQ(at, recorded.size()) << split;
  }

  std::vector<Json> trained_, evaluated_;  ///< samples in the order in which the model saw them
};

TEST_F(DataShow, OfEveryStepIsWhatTheStepReadAndOfAnEvaluationToo) {
  const Lines sets = {d + "micro_batch_num=2"};
  train_recorded(sets);
  expect_steps(sets, "train", 12, trained_);
  ASSERT_EQ(trained_.size(), 48U);
  ASSERT_EQ(evaluated_.size(), 4U * 2 * 4);  // after 5, 10 and 12 steps; and the test set
  const std::vector<Json> valid(evaluated_.begin(), evaluated_.end() - 8), test(evaluated_.end() - 8, evaluated_.end());
  expect_steps(sets, "valid", 6, valid);
  expect_steps(sets, "test", 2, test);
}

TEST_F(DataShow, KnowsStepsThatGrowAndThatAreSkippedAndThatFollowAResume) {
  for (const auto* order : {"single", "cyclic"}) {
    const Lines sets = {t + "training_iters=0",       d + "train_samples=60",
                        d + "global_batch_size=8",    d + "rampup_batch_size=[2, 2, 18]",
                        t + "iterations_to_skip=[3]", text(d, "dataloader_type=", order),
                        t + "eval_interval=0"};
    trained_.clear();
    std::filesystem::remove_all("run");
    train_recorded(sets + Lines{t + "exit_interval=5"});
    const auto before = trained_.size();
    train_recorded(sets);
    EXPECT_GT(trained_.size(), before);
    std::int64_t steps = 0;
    for (std::int64_t consumed = 0; consumed < 60; ++steps)
      consumed += schedule::BatchPlan(recipe(sets).ramp, recipe(sets).batch_sizes(1)).at(consumed).samples;
    EXPECT_GT(steps, 9);
    EXPECT_TRUE(shown(sets, {.step = 4}).empty());  // iterations_to_skip counts from 0
    expect_steps(sets, "train", steps, trained_);
  }
}

TEST_F(DataShow, OfARankIsWhatThatRankReads) {
  for (const auto* order : {"single", "cyclic"}) {
    const Lines sets = {d + "global_batch_size=8", p + "tensor_model_parallel_size=2",
                        text(d, "dataloader_type=", order)};
    const auto all = recipe::open_data(recipe(sets), 2);
    std::vector<Json> both;
    for (int rank = 0; rank < 4; ++rank) {  // two replicas of two tensor-parallel ranks
      const auto samples = shown(sets, {.step = 3, .rank = rank, .ranks = 4});
      ASSERT_EQ(samples.size(), 4U);
      Batch batch(2, 8);
      for (std::size_t i = 0; i < samples.size(); ++i) {
        const auto row = static_cast<std::int64_t>(i % 2);
        if (row == 0)
          data::read_batch(*all.splits->train, *all.train_order, 16 + 4 * static_cast<std::int64_t>(i / 2), rank / 2, 2,
                           batch);
        EXPECT_EQ(seen_by_model(samples[i]), sample_json(samples_of<TokenBatch>(batch, row, 1))) << order << rank << i;
        EXPECT_EQ(samples[i].at("micro_batch"), i / 2);
        EXPECT_EQ(samples[i].at("data_parallel_rank"), rank / 2);
        if (rank % 2 == 0) both.push_back(samples[i]);
      }
    }
    auto step = shown(sets, {.step = 3, .ranks = 4});
    const auto by_number = [](const Json& a, const Json& b) { return a.at("sample") < b.at("sample"); };
    std::sort(both.begin(), both.end(), by_number);
    EXPECT_EQ(step, both);
    EXPECT_EQ(shown(sets, {.from = 17, .count = 3, .ranks = 4}).size(), 3U);
  }
}

TEST_F(DataShow, NamesTheDocumentsOfEachTokenAndDecodesThem) {
  const indexed::IndexedDataset file("data");
  for (const auto& sample : shown({}, {.from = 0, .count = 20})) {
    const auto tokens = sample.at("tokens").get<std::vector<std::int32_t>>();
    std::int64_t next = 0;
    for (const auto& origin : sample.at("documents")) {
      ASSERT_EQ(origin.at("first"), next);
      const std::int64_t count = origin.at("count"), sequence = origin.at("sequence");
      std::vector<std::int32_t> there(static_cast<std::size_t>(count));
      file.read(sequence, origin.at("offset"), there);
      EXPECT_TRUE(std::equal(there.begin(), there.end(), tokens.begin() + next)) << sample.dump();
      EXPECT_EQ(origin.at("document"), sequence);  // one sequence each
      EXPECT_EQ(origin.at("place"), file.place(sequence, origin.at("offset")));
      next += count;
    }
    EXPECT_EQ(next, 8) << sample.dump();
    std::string words;
    for (const auto id : tokens) words += (words.empty() ? "" : " ") + std::to_string(id);
    EXPECT_EQ(sample.at("text"), words);
  }
}

TEST_F(DataShow, IsReadByPeopleToo) {
  std::ostringstream out;
  show_data(recipe({}), {.step = 2, .count = 1}, out);
  const auto told = out.str();
  for (const auto* part :
       {"train sample 2, index ", ", step 2, micro-batch 0, data-parallel rank 0\n", "  tokens  ", "  labels  ",
        "  loss mask    1 x ", "  positions    ", "  attends from ", "  text         \"", "data.bin: document "})
    EXPECT_TRUE(says(told, part)) << part << "\n" << told;
}

TEST_F(DataShow, RefusesWhatTheRunDoesNotHave) {
  const auto story = [](const Lines& sets, const DataShowRequest& request) {
    return story_of([&] { shown(sets, request); });
  };
  EXPECT_TRUE(says(story({}, {.step = 13}), "step 13: the run has the steps 1 to 12"));
  EXPECT_TRUE(says(story({}, {.step = 1, .rank = 1}), "--rank 1: a run of 1 ranks has the ranks 0 to 0"));
  EXPECT_TRUE(says(story({t + "eval_iters=0"}, {.split = "valid", .step = 1}), "--split valid: the run reads no such"));
  EXPECT_TRUE(says(story({}, {.from = 1000000000}), "dataloader_type single: sample 1000000000 is wanted"));
  EXPECT_TRUE(says(story({p + "tensor_model_parallel_size=2"}, {.step = 1, .ranks = 3}), "3"));
  std::vector<std::string> words = {"tessera", "data", "show", "run.yaml", "--step", "1", "--from", "2"};
  std::vector<char*> argv;
  for (auto& word : words) argv.push_back(word.data());
  testing::internal::CaptureStderr();
  EXPECT_EQ(run(static_cast<int>(argv.size()), argv.data()), 2);
  EXPECT_TRUE(says(testing::internal::GetCapturedStderr(), "--from"));
}

}  // namespace
}  // namespace tessera::cli
