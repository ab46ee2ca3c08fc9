#include "framework/worker/job_record.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

namespace tessera::worker {
namespace {

class JobRecordTest : public testing::Test {
 protected:
  JobRecordTest() { std::filesystem::create_directory(folder_); }
  ~JobRecordTest() override { std::filesystem::remove_all(folder_); }
  /// As jobs_of_host sees it.
  static JobOnHost job() {
    const auto all = jobs_of_host();
    const auto found = std::find_if(all.begin(), all.end(), [](const auto& one) { return one.record.id == id(); });
    return found == all.end() ? JobOnHost{} : *found;
  }
  static std::string id() { return "unit" + std::to_string(getpid()); }
  void leave(int first_rank, int start, std::vector<std::string> command) const {
    write({id(), std::move(command), {"tessera", "train", "a b.yaml"}, "/run", 3, start, getpid()},
          job_record_file(folder_, first_rank));
  }
  const std::filesystem::path folder_ = job_folder(id());
};

TEST_F(JobRecordTest, IsFoundWithTheSizeOfItsState) {
  EXPECT_EQ(job().record.id, "") << "a folder without a record is not a job";
  leave(0, 4, {"--worker_num=3", "tessera", "train", "a b.yaml"});
  std::ofstream(folder_ / "state.0") << std::string(1000, 'x');
  std::ofstream(folder_ / "vader_segment") << std::string(1000, 'x');
  const auto found = job();
  EXPECT_EQ(found.record.command.size(), 4);
  EXPECT_EQ(found.record.program[2], "a b.yaml");
  EXPECT_EQ(found.record.folder, "/run");
  EXPECT_EQ(found.record.workers, 3);
  EXPECT_EQ(found.record.start, 4);
  EXPECT_EQ(found.bytes, 1000);
  EXPECT_FALSE(found.keeps_state);
  EXPECT_FALSE(found.lives());
  std::ofstream(kept_file(folder_)).flush();
  EXPECT_TRUE(job().keeps_state);
}

TEST_F(JobRecordTest, OfSeveralTsrunsTheNewestAndTheLeadingOneCount) {
  leave(2, 1, {});
  leave(0, 1, {"leads"});
  leave(4, 0, {"older"});
  EXPECT_EQ(job().record.command, std::vector<std::string>{"leads"});
  std::ofstream(job_record_file(folder_, 6)) << "{\"id\": 3";
  EXPECT_EQ(job().record.start, 1) << "what cannot be read is left out";
}

TEST_F(JobRecordTest, TellsStateOfTheProgramFromFilesOfTsrun) {
  leave(2, 0, {});
  EXPECT_EQ(leading_process(folder_), 0);
  leave(0, 0, {"leads"});
  EXPECT_EQ(leading_process(folder_), getpid());
  for (const char* name : {"state.10", "state.2", "state.copy.0.of.1", "saved.2", "state.users"})
    std::ofstream(folder_ / name) << "x";
  std::ofstream(kept_file(folder_)) << "x";
  std::ofstream(job_lock_file(folder_, 2)) << "x";
  std::filesystem::create_symlink("/proc/1/fd/1", folder_ / "state.held.2");
  EXPECT_EQ(ranks_with_state(folder_), (std::vector<int>{2, 10}));
  std::vector<std::string> state;
  for (const auto& entry : std::filesystem::directory_iterator(folder_))
    if (is_state_of_program(entry.path())) state.push_back(entry.path().filename());
  std::sort(state.begin(), state.end());
  EXPECT_EQ(state, (std::vector<std::string>{"state.10", "state.2", "state.copy.0.of.1", "state.kept"}));
}

TEST_F(JobRecordTest, LivesWhileItsLockIsHeldOrAWorkerRuns) {
  leave(0, 0, {});
  const int lock = open(job_lock_file(folder_, 0).c_str(), O_RDWR | O_CREAT, 0600);
  EXPECT_FALSE(job().guarded);
  ASSERT_EQ(flock(lock, LOCK_EX), 0);
  EXPECT_TRUE(job().guarded);
  close(lock);
  EXPECT_FALSE(job().lives());
  const pid_t child = fork();
  if (child == 0) {
    const auto variable = "TESSERA_LAUNCH_FOLDER=" + folder_.string();
    const char* variables[] = {variable.c_str(), nullptr};
    execle("/bin/sleep", "sleep", "60", nullptr, variables);
    _exit(1);
  }
  for (int i = 0; i < 500 && job().processes.empty(); ++i) usleep(10000);
  EXPECT_EQ(job().processes, std::vector<pid_t>{child});
  kill(child, SIGKILL);
}

}  // namespace
}  // namespace tessera::worker
