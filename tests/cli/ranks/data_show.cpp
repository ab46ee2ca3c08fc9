// The samples that each of two ranks trains and evaluates on are those that `tessera data show --rank` prints.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "framework/recipe/build.h"
#include "framework/training/loop/trainer.h"
#include "tests/cli/recorder.h"
#include "tests/ranks/ranks.h"

namespace tessera::cli {
namespace {

namespace fs = std::filesystem;
using Lines = std::vector<std::string>;

class DataShowOfRanks : public testing::Test {
 protected:
  DataShowOfRanks() {
    if (world().rank() == 0) {
      std::string name = testing::TempDir() + "tessera.XXXXXX";
      if (::mkdtemp(name.data()) != nullptr) folder_ = name;
      plant_short_documents((folder_ / "data").string());
      std::ofstream(folder_ / "run.yaml")
          << "training_config: {training_iters: 9, log_interval: 1, eval_interval: 4, eval_iters: 1, num_threads: 1}\n"
             "model_config: {num_layers: 2, hidden_size: 16, num_attention_heads: 4, seq_length: 8}\n"
             "optimizer_config: {learning_rate: 1e-2}\n"
             "dataset_config: {data_path: "
          << (folder_ / "data").string()
          << ", split: \"80,10,10\", batch_size: 2, tokenizer_type: NullTokenizer, vocab_size: 63, "
             "reset_position_ids: true, reset_attention_mask: true, eod_mask_loss: true}\n";
    }
    folder_ = world().all().all_gather(folder_.string(), "the folder of the test").front();
  }
  ~DataShowOfRanks() override {
    world().all().all_gather("", "the end of the test");
    if (world().rank() == 0) fs::remove_all(folder_);
  }

  void expect_same(const std::string& run, const Lines& given) {
    auto sets = given;
    sets.push_back("training_config.output_dir=" + (folder_ / run).string());
    const auto recipe = recipe::read_recipe((folder_ / "run.yaml").string(), sets, recipe::Registries{});
    const auto processes = recipe::arrange(recipe, world());
    auto setup = recipe::build(recipe, processes, recipe::open_data(recipe, processes));
    std::vector<Json> trained, evaluated;
    setup.model.chunks[0] = std::make_unique<Recorder>(std::move(setup.model.chunks[0]), trained, evaluated);
    training::train(std::move(setup), training::StopSignal{});
    const auto expected = [&](const std::string& split, std::int64_t steps) {
      std::vector<Json> all;
      for (std::int64_t step = 1; step <= steps; ++step)
        for (const auto& one :
             shown_samples(recipe, {.split = split, .step = step, .rank = world().rank(), .ranks = world().size()}))
          all.push_back(seen_by_model(one));
      return all;
    };
    EXPECT_GT(trained.size(), 9U) << run;
    EXPECT_EQ(trained, expected("train", 9)) << run;
    auto both = expected("valid", 3);  // after 4, 8 and 9 steps
    const auto test = expected("test", 1);
    both.insert(both.end(), test.begin(), test.end());
    EXPECT_EQ(evaluated, both) << run;
  }

  fs::path folder_;  ///< the same on all ranks
};

TEST_F(DataShowOfRanks, IsWhatReplicasRead) {
  expect_same("single", {"dataset_config.micro_batch_num=2"});
  expect_same("cyclic", {"dataset_config.global_batch_size=8", "dataset_config.dataloader_type=cyclic"});
}

TEST_F(DataShowOfRanks, IsWhatTensorParallelRanksRead) {
  expect_same("tensor", {"parallel_config.tensor_model_parallel_size=2", "dataset_config.micro_batch_num=2"});
}

}  // namespace
}  // namespace tessera::cli
