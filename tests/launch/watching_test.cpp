// What tsrun judges other processes by: how long they may be silent, what they use, how many descriptors they need.
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <utility>

#include "framework/worker/launch_link.h"
#include "launch/tsrun/connection.h"
#include "launch/tsrun/descriptors.h"
#include "launch/tsrun/host.h"
#include "launch/tsrun/job.h"
#include "tests/own_folder.h"
#include "tests/story.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

TEST(Silence, OfAStoppedProcessOfThisHostIsAllowedForLonger) {
  const pid_t child = fork();
  if (child == 0) {
    raise(SIGSTOP);
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, WUNTRACED), child);
  EXPECT_EQ(tsrun::ProcessStatus(child).state, 'T');
  EXPECT_EQ(tsrun::silence_allowed(8, child), 8 * tsrun::held_up_factor);
  kill(child, SIGKILL);
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(tsrun::silence_allowed(8, child), 8) << "it has ended";
  EXPECT_EQ(tsrun::silence_allowed(8, 0), 8) << "on another host";
}

TEST(Silence, OfAProcessThatSleepsIsNot) {
  const pid_t child = fork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  for (int i = 0; i < 2000 && tsrun::ProcessStatus(child).state != 'S'; i++) usleep(5000);
  EXPECT_EQ(tsrun::silence_allowed(8, child), 8);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

/// Both ends of a connection.
struct Ends {
  tsrun::Descriptor far;
  tsrun::Connection near;
};
Ends connected() {
  const auto listener = tsrun::listen_at({"127.0.0.1", 0});
  std::string why;
  auto far = tsrun::connect_to(tsrun::local_endpoint(listener), 10, why);
  EXPECT_TRUE(far) << why;
  return {std::move(far), tsrun::Connection(tsrun::Descriptor(accept(listener.number(), nullptr, nullptr)))};
}

/// Until the other end has bytes, or the end of the connection.
void wait_for_bytes(const tsrun::Connection& near) {
  pollfd watched = {near.socket().number(), POLLIN, 0};
  EXPECT_EQ(::poll(&watched, 1, 200'000), 1);
}

TEST(Silence, EndsWithWhatIsSentThoughNobodyHasReadIt) {
  auto ends = connected();
  const double always = -1;  // seconds: every silence is longer
  EXPECT_TRUE(ends.near.is_silent_for(always));
  EXPECT_FALSE(ends.near.is_silent_for(3600));
  // A process that was stopped goes on while the time that it is allowed is looked up, and sleeps again.
  const auto allowed = [&] {
    EXPECT_EQ(::send(ends.far.number(), "{}\n", 3, MSG_NOSIGNAL), 3);
    wait_for_bytes(ends.near);
    return always;
  };
  EXPECT_FALSE(ends.near.is_silent_for(allowed()));
  ends.near.fill();
  EXPECT_EQ(ends.near.take_line(), "{}") << "it was left to be read";
  EXPECT_TRUE(ends.near.is_silent_for(always));
  ends.far.close();
  wait_for_bytes(ends.near);
  EXPECT_FALSE(ends.near.is_silent_for(always)) << "an end is told as an end";
}

class ProcessHere : public InOwnFolder {};

TEST_F(ProcessHere, IsNoneOfAHostOnAnotherMachine) {
  tsrun::LaunchOptions options;
  options.dialect = tsrun::Dialect::torchrun;
  options.nproc_per_node = 1;
  options.program = {"/bin/true"};
  options.log_dir = "log";
  auto host = tsrun::describe_this_host(options, "127.0.0.1");
  host.process = 17;
  EXPECT_EQ(tsrun::process_here(host), 17) << host.problem;
  host.machine += "x";
  EXPECT_EQ(tsrun::process_here(host), 0);
}

/// The id of a job that no other test has.
std::string own_id() { return "watching" + std::to_string(getpid()); }

TEST(JobFolders, StayWhileAnotherTsrunOfTheJobUsesThem) {
  std::optional<tsrun::JobFolders> leader, follower;
  leader.emplace(worker::JobRecord{.id = own_id()}, 0, 1);
  follower.emplace(worker::JobRecord{.id = own_id()}, 1, 1);
  const auto files = leader->files(), memory = leader->memory();
  EXPECT_TRUE(leader->shared());
  std::ofstream(worker::state_file(memory, 0)) << "x";
  follower.reset();
  EXPECT_TRUE(fs::exists(files));
  EXPECT_TRUE(fs::exists(worker::state_file(memory, 0)));
  EXPECT_FALSE(leader->shared());
  leader.reset();
  EXPECT_FALSE(fs::exists(files));
  EXPECT_FALSE(fs::exists(memory));
}

TEST(JobFolders, ThatCannotBeCompletedLeaveNothing) {
  const auto id = own_id(), memory = worker::job_folder(id).string();
  std::string files;
  {
    const tsrun::JobFolders first(worker::JobRecord{.id = id}, 0, 1);
    files = first.files();
    EXPECT_TRUE(
        says(story_of([&] { tsrun::JobFolders(worker::JobRecord{.id = id}, 0, 1); }), "another tsrun has taken"));
    EXPECT_TRUE(fs::exists(memory)) << "of the other one";
  }
  EXPECT_FALSE(fs::exists(files));
  EXPECT_FALSE(fs::exists(memory));
}

TEST(JobFolders, KeepTheirRecordWhenTheStateIsForgotten) {
  tsrun::JobFolders folders(worker::JobRecord{.id = own_id(), .workers = 4}, 0, 1);
  std::ofstream(worker::state_file(folders.memory(), 0)) << "x";
  std::ofstream(folders.memory() + "/state.copy.1.of.0") << "x";
  folders.forget(2);
  EXPECT_FALSE(fs::exists(worker::state_file(folders.memory(), 0)));
  EXPECT_FALSE(fs::exists(folders.memory() + "/state.copy.1.of.0"));
  EXPECT_TRUE(fs::exists(worker::job_record_file(folders.memory(), 0)));
  EXPECT_TRUE(fs::exists(worker::job_lock_file(folders.memory(), 0)));
  EXPECT_TRUE(worker::SharedFolder::is_used(folders.memory()));
}

/// What ensure_descriptors() says in a process with these limits, else its new soft limit.
std::string with_limits(rlim_t soft, rlim_t hard, int local, int led = 0) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    rlimit limit = {soft, hard};
    setrlimit(RLIMIT_NOFILE, &limit);
    auto story = story_of([&] { tsrun::ensure_descriptors(local, led); });
    getrlimit(RLIMIT_NOFILE, &limit);
    if (story == "no error") story = std::to_string(limit.rlim_cur);
    _exit(write(ends[1], story.data(), story.size()) > 0 ? 0 : 1);
  }
  char words[1024];
  const auto size = ::read(ends[0], words, sizeof words);
  waitpid(child, nullptr, 0);
  for (const int end : ends) close(end);
  return {words, static_cast<std::size_t>(std::max<ssize_t>(size, 0))};
}

TEST(Descriptors, TheLimitIsRaisedOnlyWhereItIsTooLow) {
  const int needed = tsrun::descriptors_needed(100);
  EXPECT_GE(needed, 600);
  const auto enough = static_cast<rlim_t>(needed);
  EXPECT_EQ(with_limits(64, enough, 100), std::to_string(needed));
  EXPECT_EQ(with_limits(enough + 1, enough + 2, 100), std::to_string(needed + 1)) << "not lowered";
  EXPECT_LE(tsrun::descriptors_needed(2), 64) << "a small job runs with a low limit";
  EXPECT_GT(tsrun::descriptors_needed(1, 1000, 1000), 2000) << "each worker and host connects to the leader";
}

TEST(Descriptors, TooFewAreRefusedWithNumberLimitAndRemedy) {
  for (const auto& [story, who] : {std::pair(with_limits(64, 64, 100), "100 workers need on this host up to "),
                                   std::pair(with_limits(64, 64, 1, 1000), "a job of 1000 workers needs on this host")})
    for (const auto* part : {who, "the hard limit is 64 (ulimit -Hn)", "raise it", "or start fewer workers"})
      EXPECT_TRUE(says(story, part)) << story;
}

}  // namespace
}  // namespace tessera
