// What a crash of the machine, at any moment of a save, leaves on the disk.
#include <deque>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "framework/base/files.h"
#include "framework/checkpoint/hugging_face_export.h"
#include "framework/checkpoint/megatron.h"
#include "framework/checkpoint/reshard.h"
#include "framework/checkpoint/writer.h"
#include "tests/file_calls.h"
#include "tests/own_folder.h"
#include "tests/story.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;

class CrashTest : public InOwnFolder {
 protected:
  CrashTest() {
    std::iota(weight_.begin(), weight_.end(), 0.F);
    std::iota(moment_.begin(), moment_.end(), 100.F);
  }
  std::vector<TensorRange> ranges() {
    return {whole("layer.weight", Tensor(std::span(weight_), Shape{6, 8})),
            whole("optimizer.exp_avg.layer.weight", Tensor(std::span(moment_), Shape{6, 8}))};
  }
  void save(std::int64_t iteration) {
    save_checkpoint("run/checkpoints", "network", iteration, ranges(),
                    {{"progress.json", "{}"}, {"resolved.yaml", ""}});
  }

  /// Runs `saving` in this folder. Each time a folder gets its final name, all in it must be stored; so must everything
  /// when the tracker gets its name, and at the end. Returns the last parts of the names given, in order.
  static Names names_given(const std::function<void()>& saving) {
    FileCalls calls(".");
    Names given;
    calls.before_rename = [&](const fs::path& from, const fs::path& to) {
      given.push_back(to.filename());
      EXPECT_EQ(calls.lost_by_crash(from, true), Names{}) << "when " << to << " gets its name";
      if (given.back().find("latest_checkpointed_iteration") == std::string::npos) return;
      auto lost = calls.lost_by_crash(".");
      std::erase_if(lost, [&](const auto& name) { return fs::absolute(name) == from; });
      EXPECT_EQ(lost, Names{}) << "when the tracker is written";
    };
    saving();
    EXPECT_EQ(calls.lost_by_crash("."), Names{}) << "at the end";
    EXPECT_GT(calls.syncs(), 0);
    return given;
  }

 private:
  std::vector<float> weight_ = std::vector<float>(48), moment_ = weight_;
};

TEST_F(CrashTest, ACheckpointIsStoredBeforeItHasItsNameAndTheTrackerIsTheLast) {
  const Names expected = {"manifest.json", "network_iter_0000005", "network_latest_checkpointed_iteration.txt"};
  EXPECT_EQ(names_given([&] { save(5); }), expected);
  EXPECT_EQ(read_file("run/checkpoints/network_latest_checkpointed_iteration.txt"), "5");
  EXPECT_NO_THROW(Checkpoint::open("run/checkpoints/network_iter_0000005").verify());
}

TEST_F(CrashTest, ACheckpointThatReplacesAnotherIsStoredBeforeTheyAreExchanged) {
  save(5);
  const auto given = names_given([&] { save(5); });
  // The plain rename is tried first, and fails.
  EXPECT_EQ(given, (Names{"manifest.json", "network_iter_0000005", "network_iter_0000005",
                          "network_latest_checkpointed_iteration.txt"}));
}

TEST_F(CrashTest, WhateverCannotBeStoredIsNeverGivenTheNameOfACheckpoint) {
  save(5);
  const auto syncs_of_a_save = [&] {
    FileCalls calls("run");
    save(6);
    return calls.syncs();
  }();
  int refused = 0;
  for (int failing = 1; failing <= syncs_of_a_save; ++failing) {
    fs::remove_all("run/checkpoints/network_iter_0000006");
    int count = 0;
    bool named = false;
    std::string story;
    {
      FileCalls calls("run");
      calls.before_rename = [&](const auto&, const auto& to) {
        named = named || to.filename() == "network_iter_0000006";
      };
      calls.sync_fails = [&](const auto&) { return ++count == failing; };
      story = story_of([&] { save(6); });
    }
    if (named) continue;  // a later one fails: the checkpoint itself is stored
    EXPECT_TRUE(says(story, "cannot be brought to the disk: Input/output error")) << failing << ": " << story;
    EXPECT_FALSE(fs::exists("run/checkpoints/network_iter_0000006") ||
                 fs::exists("run/checkpoints/network_iter_0000006_tmp"));
    ++refused;
  }
  EXPECT_GE(refused, 6);  // two files of tensors, two blobs, their folder, the manifest
  EXPECT_EQ(newest_good("run/checkpoints", "network", true)->iteration(), 6);
}

TEST_F(CrashTest, AReshardedCheckpointIsStoredBeforeItHasItsName) {
  save(5);
  const auto from = Checkpoint::open("run/checkpoints/network_iter_0000005");
  Resharding how;
  how.layout = {1, 1, {{0}}, false};
  const auto table = Mappings(MAPPINGS_DIR).table("weights/megatron.yaml");
  EXPECT_EQ(names_given([&] { reshard(from, "other", "network", how, table); }),
            (Names{"manifest.json", "network_iter_0000005", "network_latest_checkpointed_iteration.txt"}));
}

TEST_F(CrashTest, AnExportForTransformersIsStoredBeforeItHasItsName) {
  const Mappings mappings(MAPPINGS_DIR);
  const HuggingFaceModel model(TESTS_DATA "/models/gpt2/hf", mappings);
  HuggingFaceExport how;
  how.family = model.family();
  how.files = {{"config.json", "{}"}};
  how.shard_bytes = 20'000;  // several files
  const auto given = names_given([&] { write_hugging_face("models/out", model.model_config(), model, how, mappings); });
  ASSERT_GT(given.size(), 3U);
  EXPECT_EQ(given.back(), "out");
}

TEST_F(CrashTest, ACheckpointForMegatronIsStoredBeforeTheTrackerNamesIt) {
  const Mappings mappings(MAPPINGS_DIR);
  const MegatronCheckpoint source(TESTS_DATA "/megatron", mappings);
  std::deque<std::vector<float>> memory;
  std::vector<TensorRange> ranges;
  for (const auto& name : source.names()) {
    auto& values = memory.emplace_back(static_cast<std::size_t>(source.shape(name).elements()));
    ranges.push_back(whole(name, Tensor(std::span(values), source.shape(name))));
    source.read(name, ranges.back().tensor);
  }
  const auto given = names_given([&] {
    save_megatron("for/megatron", 5, ranges, source.progress(), source.recipe(), DType::float32, mappings,
                  {2, 1, {}, false});
  });
  EXPECT_EQ(given, (Names{"model_optim_rng.pt", "model_optim_rng.pt", "latest_checkpointed_iteration.txt"}));
}

}  // namespace
}  // namespace tessera
