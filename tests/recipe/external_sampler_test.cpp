// A sampler of the user's program under the name `external`, Megatron-LM's --dataloader-type external.
#include <gtest/gtest.h>

#include <atomic>
#include <nlohmann/json.hpp>

#include "framework/base/files.h"
#include "framework/recipe/build.h"
#include "framework/training/loop/trainer.h"
#include "tests/own_folder.h"
#include "tests/recipe/groups.h"
#include "tests/story.h"

namespace tessera::recipe {
namespace {

std::atomic<int> asking = 0, asked_at_once = 0;

struct BackwardOptions {
  std::int64_t stride = 1;
};
void describe(options::Schema<BackwardOptions>& s) {
  s.option("stride", &BackwardOptions::stride, "Of samples.").at_least(1);
}

/// From the last sample to the first, each `stride`-th. Counts how many threads ask at once.
class Backward final : public data::Sampler {
 public:
  Backward(std::int64_t samples, std::int64_t stride) : samples_(samples), stride_(stride) {}
  std::int64_t index(std::int64_t consumed) const override {
    if (++asking > 1) ++asked_at_once;
    if (consumed * stride_ >= samples_) {
      --asking;
      throw ConfigError(text("external: sample ", consumed, " is beyond the end"));
    }
    --asking;
    return samples_ - 1 - consumed * stride_;
  }

 private:
  std::int64_t samples_, stride_;
};

std::unique_ptr<data::Sampler> backward(const BackwardOptions& o, data::SamplerParts parts) {
  return std::make_unique<Backward>(parts.samples, o.stride);
}

class ExternalSampler : public InOwnFolder {
 protected:
  ExternalSampler() {
    write("run.yaml",
          "training_config: {training_iters: 8, log_interval: 1, eval_interval: 0, num_threads: 1, save_interval: 4}\n"
          "model_config: {num_layers: 1, hidden_size: 16, num_attention_heads: 4, seq_length: 8, vocab_size: 64}\n"
          "optimizer_config: {learning_rate: 1e-2}\n"
          "dataset_config: {dataset_type: mock, batch_size: 2, dataloader_type: external}\n");
    own_.samplers.add("external", backward, "From the last sample to the first.");
  }

  static std::vector<nlohmann::json> losses(const std::string& folder) {
    std::ifstream file(folder + "/metrics.jsonl");
    std::vector<nlohmann::json> all;
    for (std::string line; std::getline(file, line);) all.push_back(nlohmann::json::parse(line).at("loss"));
    return all;
  }
  std::vector<nlohmann::json> run(const std::string& folder, const Lines& sets) {
    testing::internal::CaptureStdout();
    auto all = sets;
    all.push_back(t + "output_dir=" + folder);
    training::train(build(read_recipe("run.yaml", all, own_)), training::StopSignal{});
    testing::internal::GetCapturedStdout();
    return losses(folder);
  }

  Registries own_;
};

TEST_F(ExternalSampler, IsTheRegisteredOneWithItsOptions) {
  const auto data = open_data(read_recipe("run.yaml", {}, own_), 1);
  const auto samples = data.splits->train->samples();
  for (const std::int64_t consumed : {0, 3, 7}) EXPECT_EQ(data.train_order->index(consumed), samples - 1 - consumed);
  const auto strided = open_data(read_recipe("run.yaml", {d + "stride=2"}, own_), 1);
  EXPECT_EQ(strided.train_order->index(3), samples - 7);
}

TEST_F(ExternalSampler, GivesTheSameRunWhoeverReadsAndWhereverItResumes) {
  const auto once = run("once", {d + "num_workers=0"});
  ASSERT_EQ(once.size(), 8U);
  EXPECT_EQ(run("ahead", {d + "num_workers=3"}), once);
  EXPECT_NE(run("single", {d + "dataloader_type=single"}), once);
  run("parts", {t + "exit_interval=4"});
  EXPECT_EQ(run("parts", {}), once);
  EXPECT_EQ(asked_at_once, 0) << "the threads that read ahead ask one at a time";
}

TEST_F(ExternalSampler, IsRefusedWhenNoneIsRegistered) {
  const auto story = story_of([] { read_recipe("run.yaml", {}, Registries{}); });
  for (const auto* part : {"run.yaml:4", "dataloader_type external: no sampler is registered under this name",
                           "registries.samplers.add(\"external\", ...)", "docs/extending.md"})
    EXPECT_TRUE(says(story, part)) << part << "\n" << story;
  EXPECT_FALSE(says(story, "no dataloader_type")) << story;
}

}  // namespace
}  // namespace tessera::recipe
