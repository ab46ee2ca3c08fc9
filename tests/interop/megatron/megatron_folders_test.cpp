// Which of the folders in Megatron-LM's --save is a checkpoint, which one is loaded, and what is told of the tracker.
#include "framework/interop/megatron/megatron_folders.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "framework/checkpoint/find.h"
#include "framework/interop/megatron/megatron.h"
#include "framework/interop/megatron/megatron_dist_format.h"
#include "tests/own_folder.h"
#include "tests/story.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

class MegatronFolders : public InOwnFolder {
 protected:
  MegatronFolders() {
    formats_.add(std::make_shared<megatron::MegatronFormat>());
    formats_.add(std::make_shared<megatron::MegatronDistFormat>());
  }

  static void torch(int iteration, const std::vector<std::string>& files = {"mp_rank_00/model_optim_rng.pt"}) {
    for (const auto& file : files) put(checkpoint::checkpoint_name("", iteration) + "/" + file);
  }
  static void dist(int iteration,
                   const std::vector<std::string>& files = {".metadata", "metadata.json", "__0_0.distcp"}) {
    torch(iteration, files);
  }
  static void put(const std::string& file) {
    fs::create_directories((fs::path("save") / file).parent_path());
    write("save/" + file, "");
  }
  static void track(const std::string& words) { write("save/latest_checkpointed_iteration.txt", words); }
  std::vector<checkpoint::FoundCheckpoint> found() const { return checkpoint::find_any("save", formats_); }
  std::string newest() const { return found().front().folder.filename(); }
  std::string told() const {
    const auto all = found();
    return checkpoint::about_tracker("save", all, all.front());
  }

  checkpoint::CheckpointFormats formats_;
};

TEST_F(MegatronFolders, TheNewestOfAllFormatsComesFirstAndUnfinishedOnesLast) {
  torch(10);
  dist(30);
  torch(20);
  torch(40, {"mp_rank_00/model_optim_rng.pt", "mp_rank_01/distrib_optim.pt"});
  dist(50, {".metadata", "__0_0.distcp"});
  dist(60, {"metadata.json", "__0_0.distcp"});
  put("iter_0000070_tmp/metadata.json");
  put("iter_80/metadata.json");
  std::vector<std::string> all;
  for (const auto& one : found())
    all.push_back(text(one.iteration, " ", one.format->name(), one.unfinished.empty() ? "" : ": " + one.unfinished));
  EXPECT_EQ(all, (std::vector<std::string>{
                     "30 torch_dist", "20 torch", "10 torch", "60 torch_dist: it has no .metadata",
                     "50 torch_dist: it has no metadata.json", "40 torch: mp_rank_01 has no model_optim_rng.pt"}));
}

TEST_F(MegatronFolders, ACheckpointIsPublishedAlsoWhereItsTrackerCannotBeWritten) {
  checkpoint::ForeignSave save;
  save.root = "save";
  save.iteration = 5;
  megatron::begin_folder(save);
  put("iter_0000005_tmp/mp_rank_00/model_optim_rng.pt");
  put("latest_checkpointed_iteration.txt/in the way");
  try {
    megatron::publish(save);
    FAIL() << "nothing is told of the tracker";
  } catch (const IoError& error) {
    EXPECT_TRUE(says(error.what(), "save/iter_0000005 is complete, but ")) << error.what();
    EXPECT_TRUE(says(error.what(), "latest_checkpointed_iteration.txt")) << error.what();
  }
  EXPECT_EQ(newest(), "iter_0000005");
  EXPECT_FALSE(fs::exists("save/iter_0000005_tmp"));
}

TEST_F(MegatronFolders, WhatTheTrackerNamesIsLoadedIfItIsWhole) {
  torch(10);
  dist(20);
  torch(30);
  EXPECT_EQ(newest(), "iter_0000030");
  EXPECT_EQ(told(), "save/latest_checkpointed_iteration.txt is missing; iter_0000030 is taken");
  track("30\n");
  EXPECT_EQ(told(), "");
  track("20");
  EXPECT_EQ(newest(), "iter_0000020");
  EXPECT_EQ(told(),
            "save/latest_checkpointed_iteration.txt names iter_0000020; iter_0000020 is taken, although "
            "iter_0000030 is newer");
  for (const auto* words : {"25", "many", "", "99999999999999999999"}) {
    track(words);
    EXPECT_EQ(newest(), "iter_0000030") << words;
    EXPECT_NE(told().find("iter_0000030 is taken"), std::string::npos) << words;
  }
  dist(40, {".metadata"});
  track("40");
  EXPECT_EQ(newest(), "iter_0000030");
  EXPECT_EQ(told(),
            "save/latest_checkpointed_iteration.txt names iter_0000040, which is no whole checkpoint there; "
            "iter_0000030 is taken");
}

TEST_F(MegatronFolders, EachFormatFindsItsOwn) {
  torch(10);
  dist(20);
  EXPECT_EQ(megatron::MegatronFormat().find("save"), "save/iter_0000010");
  EXPECT_EQ(megatron::MegatronDistFormat().find("save"), "save/iter_0000020");
  EXPECT_EQ(megatron::MegatronFormat().find("save/iter_0000020"), std::nullopt);
  dist(30, {".metadata"});
  EXPECT_EQ(megatron::MegatronDistFormat().find("save"), "save/iter_0000020");
  track("30");
  EXPECT_EQ(megatron::MegatronDistFormat().find("save"), "save/iter_0000020");
  fs::remove_all("save/iter_0000020");
  EXPECT_EQ(megatron::MegatronDistFormat().find("save"), "save/iter_0000030");  // so that its reader says what is wrong
}

TEST_F(MegatronFolders, ReleaseHoldsTheWeightsThatAreThereFromTheBeginning) {
  put("release/mp_rank_00/model_optim_rng.pt");
  track("release");
  EXPECT_EQ(newest(), "release");
  EXPECT_EQ(told(), "");
  torch(10);
  EXPECT_EQ(newest(), "release");
  track("10");
  EXPECT_EQ(newest(), "iter_0000010");
}

}  // namespace
}  // namespace tessera
