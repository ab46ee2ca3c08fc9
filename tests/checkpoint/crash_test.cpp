// What a crash of the machine, at any moment of a save, leaves on the disk.
#include <numeric>
#include <string>
#include <vector>

#include "framework/base/files.h"
#include "framework/checkpoint/reshard.h"
#include "framework/checkpoint/writer.h"
#include "tests/checkpoint/newest_good.h"
#include "tests/file_calls.h"
#include "tests/names_given.h"
#include "tests/own_folder.h"
#include "tests/story.h"

namespace tessera::checkpoint {
namespace {

namespace fs = std::filesystem;

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
  EXPECT_EQ(newest_good("run/checkpoints", "network")->iteration(), 6);
}

TEST_F(CrashTest, AReshardedCheckpointIsStoredBeforeItHasItsName) {
  save(5);
  const auto from = Checkpoint::open("run/checkpoints/network_iter_0000005");
  Resharding how;
  how.writers = {{WeightPart{"layer.weight", ParameterRole::matrix, {6, 8}, {Box::whole({6, 8})}}}};
  EXPECT_EQ(names_given([&] { reshard(from, "other", "network", how); }),
            (Names{"manifest.json", "network_iter_0000005", "network_latest_checkpointed_iteration.txt"}));
}

}  // namespace
}  // namespace tessera::checkpoint
