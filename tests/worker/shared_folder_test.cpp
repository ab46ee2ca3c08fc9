#include "framework/worker/shared_folder.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <optional>
#include <thread>
#include <vector>

#include "framework/base/error.h"
#include "framework/worker/job_record.h"
#include "tests/own_folder.h"
#include "tests/story.h"

namespace tessera::worker {
namespace {

namespace fs = std::filesystem;

class SharedFolderTest : public InOwnFolder {
 protected:
  const fs::path path_ = fs::absolute("shared");
};

TEST_F(SharedFolderTest, GoesWithItsOnlyUser) {
  {
    const auto folder = SharedFolder::make(path_);
    std::ofstream(path_ / "state.0") << "x";
    fs::create_directories(path_ / "a/b");
    EXPECT_FALSE(folder.has_other_users());
    EXPECT_TRUE(SharedFolder::is_used(path_));
  }
  EXPECT_FALSE(fs::exists(path_));
  EXPECT_FALSE(SharedFolder::is_used(path_));
}

TEST_F(SharedFolderTest, StaysAsLongAsAnotherUserHasIt) {
  std::optional<SharedFolder> first(SharedFolder::make(path_)), second(SharedFolder::make(path_));
  std::ofstream(path_ / "state.0") << "x";
  EXPECT_TRUE(first->has_other_users());
  EXPECT_TRUE(second->has_other_users());
  EXPECT_FALSE(SharedFolder::remove_unless_used(path_));
  first.reset();
  EXPECT_TRUE(fs::exists(path_ / "state.0"));
  EXPECT_FALSE(second->has_other_users());
  second.reset();
  EXPECT_FALSE(fs::exists(path_));
}

TEST_F(SharedFolderTest, StaysIfItIsKept) {
  {
    auto folder = SharedFolder::make(path_);
    folder.keep(true);
  }
  EXPECT_TRUE(fs::exists(path_));
  EXPECT_TRUE(SharedFolder::remove_unless_used(path_));
  EXPECT_FALSE(fs::exists(path_));
}

TEST_F(SharedFolderTest, IsOnlyUsedWhereItExists) {
  {
    const auto none = SharedFolder::use(path_);
    EXPECT_FALSE(none.has_other_users());
    EXPECT_FALSE(fs::exists(path_));
  }
  std::optional<SharedFolder> folder(SharedFolder::make(path_));
  {
    const auto user = SharedFolder::use(path_);
    EXPECT_TRUE(folder->has_other_users());
    folder.reset();
    EXPECT_TRUE(fs::exists(path_));
  }
  EXPECT_FALSE(fs::exists(path_));
}

TEST_F(SharedFolderTest, AProcessThatWasKilledIsNoUserAndAStoppedOneIs) {
  std::optional<SharedFolder> folder(SharedFolder::make(path_));
  const pid_t child = fork();
  if (child == 0) {
    const auto user = SharedFolder::use(path_);
    raise(SIGSTOP);
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, WUNTRACED), child);
  ASSERT_TRUE(WIFSTOPPED(status));
  EXPECT_TRUE(folder->has_other_users());
  kill(child, SIGKILL);
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_FALSE(folder->has_other_users());
  folder.reset();
  EXPECT_FALSE(fs::exists(path_));
}

TEST_F(SharedFolderTest, OfUsersThatComeAndGoTheLastOneLeavesNothing) {
  for (int round = 0; round < 20; ++round) {
    std::vector<std::thread> users;
    for (int user = 0; user < 6; ++user)
      users.emplace_back([this, user] {
        for (int i = 0; i < 5; ++i) {
          const auto folder = SharedFolder::make(path_);
          const auto file = path_ / std::to_string(user);
          std::ofstream(file) << i;
          EXPECT_TRUE(fs::exists(file)) << "deleted while it was used";
        }
      });
    for (auto& user : users) user.join();
    EXPECT_FALSE(fs::exists(path_)) << round;
  }
}

TEST_F(SharedFolderTest, ThatCannotBeMadeIsNamed) {
  std::ofstream("file") << "x";
  EXPECT_TRUE(says(story_of([] { SharedFolder::make("file/shared"); }), "file/shared cannot be made: Not a directory"));
  EXPECT_TRUE(says(story_of([] { SharedFolder::make("file"); }), "file cannot be made: Not a directory"));
}

TEST_F(SharedFolderTest, JobsWhoseFolderIsUsedLive) {
  const auto id = "use" + std::to_string(getpid());
  const auto folder = job_folder(id);
  const auto job = [&] {
    for (const auto& one : jobs_of_host())
      if (one.record.id == id) return one;
    return JobOnHost{};
  };
  std::optional<SharedFolder> user(SharedFolder::make(folder));
  user->keep(true);
  worker::write({.id = id, .process = 0}, job_record_file(folder, 0));
  EXPECT_TRUE(job().lives()) << "a process in another process namespace cannot be seen otherwise";
  user.reset();
  EXPECT_FALSE(job().lives());
  fs::remove_all(folder);
}

}  // namespace
}  // namespace tessera::worker
