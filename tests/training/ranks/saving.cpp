// Saves by several ranks: a rank that is late, one that fails, ranges that do not fit together.
#include <gtest/gtest.h>

#include <cstdlib>
#include <thread>

#include "framework/base/files.h"
#include "framework/training/saving/divided_checkpoints.h"
#include "framework/training/saving/save_job.h"
#include "framework/training/saving/shared_loading.h"
#include "tests/ranks/ranks.h"
#include "tests/story.h"
#include "tests/training/held_state.h"

namespace tessera::training {
namespace {

namespace fs = std::filesystem;

/// A folder that all ranks have in common. Each rank saves two rows of "w", whose elements are its rank.
class SaveByRanks : public testing::Test {
 protected:
  SaveByRanks() {
    std::string name = testing::TempDir() + "tessera.XXXXXX";
    if (group.rank() == 0) name = mkdtemp(name.data());
    root = group.broadcast(name, 0, "a folder");
    rows.assign(8, static_cast<float>(group.rank()));
  }
  ~SaveByRanks() override {
    group.barrier("the end of a test");
    if (group.rank() == 0) fs::remove_all(root);
  }
  std::vector<checkpoint::TensorRange> ranges(std::int64_t shift = 0) {
    return {{"w", Shape{2 * group.size(), 4}, {2 * group.rank() + shift, 0}, Tensor(std::span(rows), Shape{2, 4})}};
  }
  std::unique_ptr<SaveJob> begin(std::int64_t iteration, std::shared_ptr<const checkpoint::StateSnapshot> snapshot) {
    return std::make_unique<SaveJob>(group, SaveTarget{.root = root, .prefix = "", .iteration = iteration},
                                     std::move(snapshot));
  }
  std::shared_ptr<checkpoint::StateSnapshot> copy() { return std::make_shared<checkpoint::CopiedState>(ranges()); }
  /// All ranks come here before one goes on.
  void meet() { group.barrier("a meeting"); }
  void expect_saved(std::int64_t iteration) {
    meet();
    const auto opened = checkpoint::Checkpoint::open(root / checkpoint::checkpoint_name("", iteration));
    EXPECT_NO_THROW(opened.verify());
    std::vector<float> all(8 * static_cast<std::size_t>(group.size()));
    opened.read(checkpoint::whole("w", Tensor(std::span(all), Shape{2 * group.size(), 4})));
    for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i], static_cast<float>(i / 8));
    EXPECT_TRUE(fs::exists(opened.folder() / text("manifest_0000", group.rank(), ".json")));
    std::string parts = "\"parts\":[0";  // in the index
    for (int rank = 1; rank < group.size(); ++rank) parts += text(",", rank);
    EXPECT_TRUE(says(read_file(opened.folder() / "manifest.json"), parts + "]"));
    meet();
  }
  void expect_nothing_of(std::int64_t iteration) {
    meet();
    const auto folder = root / checkpoint::checkpoint_name("", iteration);
    EXPECT_FALSE(fs::exists(folder) || fs::exists(folder.string() + "_tmp"));
    meet();
  }

  comm::Communicator group = world().all();
  fs::path root;
  std::vector<float> rows;
};

TEST_F(SaveByRanks, NothingIsCommittedBeforeTheLastRankHasWrittenAndOtherOperationsComeInBetween) {
  for (int late = 0; late < group.size(); ++late) {
    const auto held = std::make_shared<HeldState>(ranges());
    const auto job = begin(late, group.rank() == late ? held : copy());
    for (int i = 0; i < 20; ++i) {
      EXPECT_FALSE(job->poll());
      float sum = 1;
      group.all_reduce({&sum, 1}, "a step of training");
      EXPECT_EQ(sum, static_cast<float>(group.size()));
    }
    EXPECT_FALSE(fs::exists(root / checkpoint::checkpoint_name("", late)));
    meet();
    held->release();
    // Training goes on until all ranks know that the checkpoint is saved.
    for (float ended = 0; ended < static_cast<float>(group.size());) {
      ended = job->poll() ? 1.F : 0.F;
      group.all_reduce({&ended, 1}, "a step of training");
    }
    EXPECT_EQ(job->finish(), root / checkpoint::checkpoint_name("", late));
    expect_saved(late);
  }
}

TEST_F(SaveByRanks, AFailureOfOneRankIsThatOfAllAndLeavesNothing) {
  begin(1, copy())->finish();
  for (int failing = 0; failing < group.size(); ++failing) {
    const auto broken = std::make_shared<BrokenState>(ranges(), "no space");
    const auto job = begin(2, group.rank() == failing ? broken : copy());
    const auto expected = group.rank() == failing ? "no space" : text("rank ", failing, ": no space");
    EXPECT_EQ(story_of([&] { job->finish(); }), expected);
    EXPECT_TRUE(job->poll());
    expect_nothing_of(2);
  }
  expect_saved(1);
  begin(2, copy())->finish();
  expect_saved(2);
}

TEST_F(SaveByRanks, OfSeveralFailuresThatOfTheLowestRankIsTold) {
  const auto broken = std::make_shared<BrokenState>(ranges(), text("trouble of ", group.rank()));
  const auto job = begin(2, group.rank() > 0 ? broken : copy());
  EXPECT_EQ(story_of([&] { job->finish(); }), group.rank() == 1 ? "trouble of 1" : "rank 1: trouble of 1");
  expect_nothing_of(2);
}

TEST_F(SaveByRanks, AFailureOfTheCommitIsThatOfAll) {
  /// Files that are written and cannot be committed.
  class Uncommitted final : public CheckpointFiles {
   public:
    fs::path folder() const override { return "nowhere"; }
    void begin() override {}
    checkpoint::WrittenPart write(int rank, const checkpoint::StateSnapshot&) override { return {.writer = rank}; }
    void commit(std::span<const checkpoint::WrittenPart>, const checkpoint::Blobs&) override {
      throw IoError("no manifest");
    }
    void abandon() noexcept override {}
  };
  SaveTarget target{.root = root, .prefix = "", .iteration = 1, .files = std::make_unique<Uncommitted>()};
  SaveJob job(group, std::move(target), copy());
  EXPECT_EQ(story_of([&] { job.finish(); }), group.rank() == 0 ? "no manifest" : "rank 0: no manifest");
}

TEST_F(SaveByRanks, WhatFailsAfterTheCommitUndoesItOnNoRank) {
  SaveTarget target{.root = root, .prefix = "", .iteration = 1, .after = [] { throw IoError("an old one stays"); }};
  SaveJob job(group, std::move(target), copy());
  EXPECT_EQ(story_of([&] { job.finish(); }), "no error");
  expect_saved(1);
}

TEST_F(SaveByRanks, AJobThatOneRankDropsFailsOnAll) {
  for (int dropping = 0; dropping < group.size(); ++dropping) {
    auto job = begin(1, copy());
    if (group.rank() == dropping)
      job.reset();
    else
      EXPECT_EQ(story_of([&] { job->finish(); }), text("rank ", dropping, ": the save was given up"));
    expect_nothing_of(1);
  }
}

TEST_F(SaveByRanks, SeveralSavesMayBeInFlight) {
  const auto first = begin(1, copy()), second = begin(2, copy());
  // Each rank asks in an order of its own.
  for (float ended = 0; ended < static_cast<float>(group.size());) {
    const bool one = group.rank() % 2 == 0 ? first->poll() : second->poll();
    const bool other = group.rank() % 2 == 0 ? second->poll() : first->poll();
    ended = one && other ? 1.F : 0.F;
    group.all_reduce({&ended, 1}, "a step of training");
  }
  expect_saved(1);
  expect_saved(2);
}

TEST_F(SaveByRanks, RangesThatDoNotFitTogetherAreRefusedOnAllRanksBeforeAnythingIsWritten) {
  const auto hole =
      std::make_shared<checkpoint::CopiedState>(group.rank() == 1 ? std::vector<checkpoint::TensorRange>() : ranges());
  EXPECT_TRUE(says(story_of([&] { begin(1, hole); }), text("'w': its ranges cover ", 8 * (group.size() - 1), " of ")));
  const auto shifted = std::make_shared<checkpoint::CopiedState>(ranges(group.rank() == 0 ? 1 : 0));
  EXPECT_TRUE(says(story_of([&] { begin(1, shifted); }), "'w': two ranges overlap"));
  rows.resize(16 * static_cast<std::size_t>(group.size()));
  const Tensor all(std::span<float>(rows).first(8 * static_cast<std::size_t>(group.size())),
                   Shape{2 * group.size(), 4});
  const auto twice = std::make_shared<checkpoint::CopiedState>(
      group.rank() < 2 ? std::vector{checkpoint::whole("w", all)} : std::vector<checkpoint::TensorRange>());
  EXPECT_TRUE(says(story_of([&] { begin(1, twice); }), "'w': two ranges overlap"));
  expect_nothing_of(1);
}

/// Ranks with an even and an odd number are on two hosts, each with a folder of its own.
class SaveByHosts : public SaveByRanks {
 protected:
  SaveByHosts() : host(group.rank() % 2), common(root) {
    ::setenv("TESSERA_LAUNCH_HOST", text(host).c_str(), 1);
    root /= text("disk", host);
    meet();
  }
  ~SaveByHosts() override {
    ::unsetenv("TESSERA_LAUNCH_HOST");
    root = common;
  }
  FoundDivided found(std::vector<std::string>& notes, std::optional<std::int64_t> step = {}) {
    return newest_divided(group, hosts_of(group), {root, "", [](const auto&) { return true; }}, step, notes);
  }
  fs::path folder(std::int64_t iteration) { return root / checkpoint::checkpoint_name("", iteration); }
  /// By the first rank of a host.
  void change(int on_host, const std::function<void()>& work) {
    meet();
    if (group.rank() == on_host) work();
    meet();
  }
  /// Whether all ranks together read every element, from what their hosts have.
  void expect_loaded(std::int64_t iteration) {
    std::vector<float> all(8 * static_cast<std::size_t>(group.size()), -1.F);
    const std::vector wanted = {checkpoint::whole("w", Tensor(std::span(all), Shape{2 * group.size(), 4}))};
    EXPECT_EQ(load_shared(group, checkpoint::Checkpoint::open_index(folder(iteration)), wanted, true), "");
    for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i], static_cast<float>(i / 8));
  }

  int host;
  fs::path common;
};

TEST_F(SaveByHosts, EachHasItsPartsAndTheIndexAndTheyAreReadTogether) {
  EXPECT_EQ(begin(3, copy())->finish(), folder(3));
  meet();
  EXPECT_FALSE(fs::exists(folder(3).string() + "_tmp"));
  for (int rank = 0; rank < group.size(); ++rank)
    EXPECT_EQ(fs::exists(folder(3) / text("manifest_0000", rank, ".json")), rank % 2 == host) << rank;
  EXPECT_TRUE(says(story_of([&] { checkpoint::Checkpoint::open(folder(3)); }), "is not here: it was saved on host "));
  std::vector<std::string> notes;
  EXPECT_EQ(found(notes).checkpoint->iteration, 3);
  EXPECT_TRUE(notes.empty());
  expect_loaded(3);
}

TEST_F(SaveByHosts, WhatOneHostLostIsNamedAndTheNewestThatIsWholeIsTaken) {
  for (const int iteration : {1, 2, 3}) begin(iteration, copy())->finish();
  change(1, [&] { fs::remove_all(folder(3)); });
  change(0, [&] { fs::remove(folder(2) / "model_00000.safetensors"); });
  std::vector<std::string> notes;
  const auto newest = found(notes);
  EXPECT_EQ(newest.checkpoint->iteration, 1);
  EXPECT_EQ(newest.lost_at, 3);
  if (group.rank() == 0) {
    ASSERT_EQ(notes.size(), 2U);
    EXPECT_TRUE(says(notes[0], text("iter_0000003 is not whole: ", group.size() / 2, " of ", group.size(), " part")));
    EXPECT_TRUE(says(notes[0], ", which were saved on ") && says(notes[0], "are on no host of this run"));
    EXPECT_TRUE(says(notes[1], text("iter_0000002 is not whole: 1 of ", group.size(), " parts")));
  }
  expect_loaded(1);
  EXPECT_FALSE(found(notes, 3).checkpoint);
  EXPECT_TRUE(found(notes, 3).is_divided);
}

TEST_F(SaveByHosts, OneThatStoppedBeforeItsCommitCommitsAtTheNextSearch) {
  begin(4, copy())->finish();
  change(1, [&] {
    fs::rename(folder(4), folder(4).string() + "_tmp");
    fs::remove(folder(4).string() + "_tmp/manifest.json");
  });
  std::vector<std::string> notes;
  EXPECT_EQ(found(notes).checkpoint->iteration, 4);
  EXPECT_TRUE(fs::exists(folder(4) / "manifest.json"));
  EXPECT_FALSE(fs::exists(folder(4).string() + "_tmp"));
  expect_loaded(4);
}

TEST_F(SaveByHosts, WhatAHostHasOfACommittedCheckpointIsCommittedWithoutASearchAndOtherRestsAreNot) {
  begin(4, copy())->finish();
  begin(5, copy())->finish();
  const auto undo = [&](std::int64_t iteration) {
    fs::rename(folder(iteration), folder(iteration).string() + "_tmp");
    fs::remove(folder(iteration).string() + "_tmp/manifest.json");
  };
  change(0, [&] { undo(5); });
  change(1, [&] { undo(5), undo(4); });
  complete_divided(group, hosts_of(group), root, "");
  meet();
  EXPECT_TRUE(fs::exists(folder(4) / "manifest.json"));
  EXPECT_FALSE(fs::exists(folder(4).string() + "_tmp"));
  expect_loaded(4);
  EXPECT_FALSE(fs::exists(folder(5)));
  EXPECT_TRUE(fs::exists(folder(5).string() + "_tmp"));
}

TEST_F(SaveByHosts, AHostWithAllFilesNeedsNoOther) {
  begin(5, copy())->finish();
  change(0, [&] {
    fs::copy(common / "disk1/iter_0000005", folder(5), fs::copy_options::recursive | fs::copy_options::skip_existing);
    fs::remove_all(common / "disk1");
  });
  std::vector<std::string> notes;
  EXPECT_EQ(found(notes).checkpoint->iteration, 5);
  EXPECT_TRUE(fs::exists(folder(5) / "manifest.json"));  // of each host
  expect_loaded(5);
}

TEST_F(SaveByHosts, ASaveThatFailsOnOneLeavesNothingOnAny) {
  for (int broken = 0; broken < group.size(); ++broken) {
    const auto job =
        begin(6, group.rank() == broken ? std::make_shared<BrokenState>(ranges(), "the disk is full") : copy());
    EXPECT_THROW(job->finish(), IoError);
    expect_nothing_of(6);
  }
  begin(6, copy())->finish();
  meet();  // a rank does not wait for the commit of the first one on its host
  expect_loaded(6);
}

TEST_F(SaveByHosts, HostsThatHaveAFolderInCommonSaveOneCheckpoint) {
  root = common;
  begin(7, copy())->finish();
  expect_saved(7);
  EXPECT_FALSE(fs::exists(folder(7) / "token_of_folder"));
  std::vector<std::string> notes;
  EXPECT_FALSE(found(notes).is_divided);
}

TEST(PartsToRead, EachPartIsReadByTheRanksOfOneHostThatHasIt) {
  // Ranks 0 and 1 have parts 0 and 1; ranks 2 and 3 have 1 and 2; nobody has 3.
  const std::vector<bool> first = {true, true, false, false}, second = {false, true, true, false};
  const std::vector here = {first, first, second, second};
  for (const std::size_t rank : {0U, 1U, 2U, 3U}) {
    const auto own = parts_to_read(here, rank);
    EXPECT_EQ(own.parts, rank < 2 ? (std::vector<std::size_t>{0, 1, 3}) : std::vector<std::size_t>{2});
    EXPECT_EQ(own.which, rank % 2);
    EXPECT_EQ(own.of, 2U);
  }
}

}  // namespace
}  // namespace tessera::training
