#include "framework/worker/launch_link.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <numeric>

#include "framework/base/error.h"

namespace tessera::worker {
namespace {

/// The launcher's end of a line that LaunchLink finds in the environment.
class Line : public testing::Test {
 protected:
  Line() {
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends_), 0);
    promise(ends_[1], inode(ends_[1]));
    setenv("TESSERA_LAUNCH_FOLDER", "/dev/shm/of_the_job", 1);
  }
  ~Line() override {
    unsetenv("TESSERA_LAUNCH_LINK");
    unsetenv("TESSERA_LAUNCH_FOLDER");
    for (const int end : ends_) close(end);
  }
  static std::uint64_t inode(int descriptor) {
    struct stat found = {};
    fstat(descriptor, &found);
    return found.st_ino;
  }
  static void promise(int descriptor, std::uint64_t number) {
    setenv("TESSERA_LAUNCH_LINK", text(descriptor, ":", number).c_str(), 1);
  }
  std::string heard() const {
    char packet[16384];
    const auto size = recv(ends_[0], packet, sizeof packet, MSG_DONTWAIT);
    return size > 0 ? std::string(packet, static_cast<std::size_t>(size)) : "";
  }

 private:
  int ends_[2] = {-1, -1};

 protected:
  int theirs() const { return ends_[1]; }
};

TEST_F(Line, EachWordIsAPacket) {
  const LaunchLink link;
  ASSERT_TRUE(link.present());
  EXPECT_EQ(link.folder(), "/dev/shm/of_the_job");
  link.joining();
  link.joined();
  link.report("tp 0, iteration 3");
  link.failed("own", false);
  link.failed("peer", true);
  link.done();
  link.how_to_resume("so");
  link.expect(2.5, "step 3");
  link.expect_nothing();
  link.can_continue_with({2, 4});
  for (const auto* packet : {"J", "I", "Ptp 0, iteration 3", "Fown", "Lpeer", "D", "Rso", "T2.5 step 3", "T", "N2,4"})
    EXPECT_EQ(heard(), packet);
}

TEST_F(Line, OfManyNumbersOfRanksTheLargestAreTold) {
  std::vector<std::int64_t> all(5000);
  std::iota(all.begin(), all.end(), 1);
  LaunchLink().can_continue_with(all);
  const auto packet = heard();
  EXPECT_EQ(packet.substr(0, 6), "N4001,");
  EXPECT_EQ(packet.substr(packet.size() - 5), ",5000");
}

TEST_F(Line, AnotherFileUnderThePromisedNumberIsLeftAlone) {
  promise(theirs(), inode(theirs()) + 1);
  EXPECT_FALSE(LaunchLink().present());
  const int file = open("/dev/null", O_RDONLY);
  promise(file, inode(file));
  EXPECT_FALSE(LaunchLink().present());
  close(file);
  setenv("TESSERA_LAUNCH_LINK", "nonsense", 1);
  const LaunchLink link;
  EXPECT_FALSE(link.present());
  EXPECT_TRUE(link.folder().empty());
  link.done();
  EXPECT_EQ(heard(), "");
}

TEST_F(Line, ALauncherThatDoesNotListenHoldsNobodyUp) {
  const LaunchLink link;
  for (int i = 0; i < 10000; i++) link.report(std::string(1000, 'x'));
  link.report(std::string(100000, 'x'));
  EXPECT_EQ(heard(), "P" + std::string(1000, 'x'));
}

TEST(FullWorld, IsWhatTheJobWasStartedWith) {
  unsetenv("TESSERA_LAUNCH_FULL_WORLD");
  EXPECT_EQ(full_world(4), 4);
  setenv("TESSERA_LAUNCH_FULL_WORLD", "8", 1);
  EXPECT_EQ(full_world(4), 8);
  setenv("TESSERA_LAUNCH_FULL_WORLD", "nonsense", 1);
  EXPECT_EQ(full_world(4), 4);
  unsetenv("TESSERA_LAUNCH_FULL_WORLD");
}

TEST(JobStarts, AreThoseOfTsrunAndOfSlurm) {
  const auto with = [](const char* launched, const char* queued, const char* restarts) {
    for (const auto& [name, value] : {std::pair{"TESSERA_LAUNCH_JOB", launched}, std::pair{"SLURM_JOB_ID", queued},
                                      std::pair{"SLURM_RESTART_COUNT", restarts}})
      value == nullptr ? unsetenv(name) : setenv(name, value, 1);
    return job_starts();
  };
  using Starts = std::map<std::string, std::int64_t>;
  EXPECT_EQ(with(nullptr, nullptr, nullptr), Starts());
  EXPECT_EQ(with("0a1b:0", nullptr, nullptr), (Starts{{"tsrun 0a1b", 0}}));
  EXPECT_EQ(with("0a1b:3", "77", "2"), (Starts{{"tsrun 0a1b", 3}, {"slurm 77", 2}}));
  EXPECT_EQ(with("nonsense", "77", nullptr), (Starts{{"slurm 77", 0}}));
  with(nullptr, nullptr, nullptr);
}

}  // namespace
}  // namespace tessera::worker
