// A save by one rank while the state changes. By several ranks: ranks/saving.cpp.
#include "framework/training/saving/save_job.h"

#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <numeric>
#include <system_error>
#include <thread>

#include "framework/base/files.h"
#include "tests/checkpoint/newest_good.h"
#include "tests/own_folder.h"
#include "tests/story.h"
#include "tests/training/held_state.h"

namespace tessera::training {
namespace {

namespace fs = std::filesystem;

class SaveJobTest : public InOwnFolder {
 protected:
  SaveJobTest() { std::iota(weights_.begin(), weights_.end(), 0.F); }
  std::vector<checkpoint::TensorRange> ranges() {
    return {checkpoint::whole("w", Tensor(std::span(weights_), Shape{300, 1000})),
            checkpoint::whole("optimizer.m.w", Tensor(std::span(weights_), Shape{300, 1000}))};
  }
  std::unique_ptr<SaveJob> begin(std::int64_t iteration, std::shared_ptr<const checkpoint::StateSnapshot> snapshot) {
    return std::make_unique<SaveJob>(
        comm::Communicator(), SaveTarget{.root = "run", .prefix = "", .iteration = iteration}, std::move(snapshot));
  }
  void save(std::int64_t iteration) { begin(iteration, std::make_shared<checkpoint::LiveState>(ranges()))->finish(); }
  /// The saved values of both tensors, which must be equal.
  static std::vector<float> saved(const fs::path& folder) {
    const auto opened = checkpoint::Checkpoint::open(folder);
    std::vector<float> weights(300'000), moments = weights;
    opened.read(checkpoint::whole("w", Tensor(std::span(weights), Shape{300, 1000})), {.check_crc = true});
    opened.read(checkpoint::whole("optimizer.m.w", Tensor(std::span(moments), Shape{300, 1000})), {.check_crc = true});
    EXPECT_EQ(weights, moments);
    return weights;
  }
  std::vector<float> weights_ = std::vector<float>(300'000);
};

TEST_F(SaveJobTest, TheStateOfTheSnapshotIsSavedWhileTheLiveOneChanges) {
  const auto before = weights_;
  const auto snapshot = std::make_shared<HeldState>(ranges());
  const auto job = begin(7, snapshot);
  EXPECT_FALSE(job->poll());
  EXPECT_FALSE(fs::exists("run/iter_0000007"));
  for (auto& weight : weights_) weight = -weight;
  EXPECT_FALSE(job->poll());
  snapshot->release();
  for (auto& weight : weights_) weight += 1;  // while the thread writes
  while (!job->poll()) std::this_thread::yield();
  EXPECT_TRUE(job->poll());
  EXPECT_EQ(job->finish(), "run/iter_0000007");
  EXPECT_EQ(saved("run/iter_0000007"), before);
  EXPECT_EQ(read_file("run/latest_checkpointed_iteration.txt"), "7");
}

TEST_F(SaveJobTest, ASaveThatFailsLeavesNothingAndTheNextOneSucceeds) {
  save(1);
  const auto job = begin(2, std::make_shared<BrokenState>(ranges(), "the disk is full"));
  while (!job->poll()) std::this_thread::yield();
  EXPECT_THROW(job->finish(), IoError);
  EXPECT_EQ(story_of([&] { job->finish(); }), "the disk is full");  // as often as it is asked
  EXPECT_FALSE(fs::exists("run/iter_0000002") || fs::exists("run/iter_0000002_tmp"));
  EXPECT_EQ(checkpoint::newest_good("run")->iteration(), 1);
  save(2);
  EXPECT_EQ(saved("run/iter_0000002"), weights_);
}

TEST_F(SaveJobTest, AJobThatIsDroppedCommitsNothing) {
  begin(3, std::make_shared<checkpoint::CopiedState>(ranges()));
  EXPECT_FALSE(fs::exists("run/iter_0000003") || fs::exists("run/iter_0000003_tmp"));
}

TEST_F(SaveJobTest, WhatNeedsApprovalIsCommittedAfterItAndNotWithoutIt) {
  const auto state = std::make_shared<checkpoint::CopiedState>(ranges());
  const auto begin_for_approval = [&](std::int64_t iteration) {
    SaveTarget target{.root = "run", .prefix = "", .iteration = iteration, .needs_approval = true};
    return std::make_unique<SaveJob>(comm::Communicator(), std::move(target), state);
  };
  auto job = begin_for_approval(4);
  for (int i = 1; i <= 5; ++i) {  // whole saves in another folder give this one time for each of its stages
    SaveJob(comm::Communicator(), {.root = "other", .prefix = "", .iteration = i}, state).finish();
    ASSERT_FALSE(job->poll());
  }
  EXPECT_FALSE(fs::exists("run/iter_0000004"));
  job->approve();
  EXPECT_EQ(job->finish(), "run/iter_0000004");
  job = begin_for_approval(5);
  job->give_up("the state was wrong");
  EXPECT_EQ(story_of([&] { job->finish(); }), "rank 0: the state was wrong");
  begin_for_approval(6);
  EXPECT_EQ(checkpoint::newest_good("run")->iteration(), 4);
  EXPECT_FALSE(fs::exists("run/iter_0000005_tmp") || fs::exists("run/iter_0000006_tmp"));
}

TEST_F(SaveJobTest, WhatComesBeforeTheSaveCanRefuseItAndWhatComesAfterItIsTold) {
  const auto state = std::make_shared<checkpoint::CopiedState>(ranges());
  const auto refuse = [] { throw IoError("not here"); };
  const auto save_with = [&](SaveTarget target) {
    target.root = "run";
    return story_of([&] { SaveJob({}, std::move(target), state).finish(); });
  };
  EXPECT_EQ(save_with({.root = "", .prefix = "", .iteration = 1, .before = refuse}), "not here");
  EXPECT_FALSE(fs::exists("run"));
  testing::internal::CaptureStderr();
  EXPECT_EQ(save_with({.root = "", .prefix = "", .iteration = 1, .after = refuse}), "no error");
  const auto told = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(says(told, "run/iter_0000001 is saved, but old checkpoints may remain: not here")) << told;
  EXPECT_EQ(checkpoint::newest_good("run")->iteration(), 1);
}

/// The standard library throws its own exception where a file or a folder cannot be looked at.
TEST_F(SaveJobTest, AFolderThatCannotBeLookedAtIsADiskThatFails) {
  const auto fail = [] {
    throw fs::filesystem_error("cannot look", "there", std::make_error_code(std::errc::io_error));
  };
  const auto expect_io_error = [](const std::function<void()>& save) {
    EXPECT_THROW(save(), IoError);
    EXPECT_TRUE(says(story_of(save), "cannot look"));
  };
  const auto state = std::make_shared<checkpoint::CopiedState>(ranges());
  const auto target = [](std::int64_t iteration) {
    return SaveTarget{.root = "run", .prefix = "", .iteration = iteration};
  };
  expect_io_error([&] {
    auto refused = target(1);
    refused.before = fail;
    SaveJob({}, std::move(refused), state).finish();
  });
  /// Files of which a part fails.
  class Failing final : public CheckpointFiles {
   public:
    Failing(std::function<void()> writing, std::function<void()> committing, int& abandoned)
        : writing_(std::move(writing)), committing_(std::move(committing)), abandoned_(abandoned) {}
    fs::path folder() const override { return "run/iter_0000002"; }
    void begin() override {}
    checkpoint::WrittenPart write(int rank, const checkpoint::StateSnapshot&) override {
      if (writing_) writing_();
      return {.writer = rank};
    }
    void commit(std::span<const checkpoint::WrittenPart>, const checkpoint::Blobs&) override {
      if (committing_) committing_();
    }
    void abandon() noexcept override { ++abandoned_; }

   private:
    std::function<void()> writing_, committing_;
    int& abandoned_;
  };
  int abandoned = 0;
  for (const bool writes : {true, false})
    expect_io_error([&] {
      auto failing = target(2);
      failing.files = std::make_unique<Failing>(writes ? fail : std::function<void()>(),
                                                writes ? std::function<void()>() : fail, abandoned);
      SaveJob({}, std::move(failing), state).finish();
    });
  EXPECT_EQ(abandoned, 4);  // each is tried twice
}

TEST_F(SaveJobTest, AKillBetweenBeginAndFinishLeavesTheLastGoodCheckpoint) {
  save(1);
  const auto child = ::fork();
  if (child == 0) {
    /// A process that ends in the middle of its second file.
    class Killed final : public checkpoint::StateSnapshot {
     public:
      explicit Killed(std::vector<checkpoint::TensorRange> given) : StateSnapshot(std::move(given)) {}
      std::span<const std::byte> bytes(std::size_t index, std::size_t first,
                                       std::span<std::byte> buffer) const override {
        if (index == 1 && first > 0) ::_exit(42);
        return StateSnapshot::bytes(index, first, buffer);
      }
    };
    begin(2, std::make_shared<Killed>(ranges()))->finish();
    ::_exit(1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(WEXITSTATUS(status), 42);
  EXPECT_TRUE(fs::exists("run/iter_0000002_tmp/model_00000.safetensors"));
  EXPECT_FALSE(fs::exists("run/iter_0000002"));
  EXPECT_EQ(checkpoint::newest_good("run")->iteration(), 1);
  save(2);
  EXPECT_EQ(saved("run/iter_0000002"), weights_);
  EXPECT_FALSE(fs::exists("run/iter_0000002_tmp"));
}

}  // namespace
}  // namespace tessera::training
