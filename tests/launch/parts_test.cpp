// The parts of tsrun that start nothing: hosts, cores, environments, the choice of the root cause.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "launch/tsrun/address.h"
#include "launch/tsrun/connection.h"
#include "launch/tsrun/cores.h"
#include "launch/tsrun/host.h"
#include "launch/tsrun/host_list.h"
#include "launch/tsrun/job.h"
#include "launch/tsrun/report.h"
#include "tests/own_folder.h"
#include "tests/story.h"

namespace tessera {
namespace {

tsrun::LaunchOptions with_hosts(const std::string& list) {
  tsrun::LaunchOptions options;
  options.hosts = list;
  return options;
}

TEST(HostList, EachHostHasItsNumberOrTheCommonOne) {
  const auto hosts = tsrun::listed_hosts(with_hosts("a:8,b"), 4, 12);
  ASSERT_EQ(hosts.size(), 2U);
  EXPECT_EQ(hosts[0].name, "a");
  EXPECT_EQ(hosts[0].workers, 8);
  EXPECT_EQ(hosts[1].workers, 4);
}

TEST(HostList, MistakesAreNamed) {
  for (const auto& [list, reason] : std::map<std::string, std::string>{{"a:8,a:8", "a is listed twice"},
                                                                       {"a:0", "'a:0'"},
                                                                       {"a:x", "'a:x'"},
                                                                       {":3", "names no host"},
                                                                       {"a:8,b:1", "9 workers"}})
    EXPECT_TRUE(says(story_of([&list = list] { tsrun::listed_hosts(with_hosts(list), 0, 16); }), reason)) << list;
  EXPECT_TRUE(
      says(story_of([] { tsrun::listed_hosts(with_hosts("a"), 0, 0); }), "the number of workers of a is missing"));
}

TEST(HostList, SparesAreOtherHosts) {
  auto options = with_hosts("a:8,b:8");
  const auto hosts = tsrun::listed_hosts(options, 0, 16);
  EXPECT_TRUE(tsrun::listed_spares(options, 0, hosts).empty());
  options.spares = "c:8,d";
  const auto spares = tsrun::listed_spares(options, 4, hosts);
  ASSERT_EQ(spares.size(), 2U);
  EXPECT_EQ(spares[1].name, "d");
  EXPECT_EQ(spares[1].workers, 4);
  options.spares = "c:8,b:8";
  EXPECT_TRUE(says(story_of([&] { tsrun::listed_spares(options, 0, hosts); }), "host b is listed twice"));
  options.spares = "c:x";
  EXPECT_TRUE(says(story_of([&] { tsrun::listed_spares(options, 0, hosts); }), "--spares: 'c:x'"));
}

class Files : public InOwnFolder {};

TEST_F(Files, AHostFileHasSlotsAndRemarks) {
  write("hosts", "# two\na slots=8\n\nb:4 # the small one\nc\n");
  tsrun::LaunchOptions options;
  options.host_file = "hosts";
  const auto hosts = tsrun::listed_hosts(options, 2, 14);
  ASSERT_EQ(hosts.size(), 3U);
  EXPECT_EQ(hosts[1].workers, 4);
  write("hosts", "a\nb slot=8\n");
  EXPECT_TRUE(says(story_of([&] { tsrun::listed_hosts(options, 2, 0); }), "hosts:2: 'slot=8'"));
}

/// The hosts of a file of these lines, as "a:8 b:2"; `each` workers for a host without a number.
std::string hosts_in(const std::string& lines, int each = 0) {
  std::ofstream("hosts") << lines;
  tsrun::LaunchOptions options;
  options.host_file = "hosts";
  std::string all;
  for (const auto& host : tsrun::listed_hosts(options, each, 0))
    all += text(all.empty() ? "" : " ", host.name, ":", host.workers);
  return all;
}

TEST_F(Files, AHostFileMayHaveTheFormOfAnotherLauncher) {
  EXPECT_EQ(hosts_in("a slots = 2\nb slots= 3 max_slots =4\r\n  c slots=1 max-slots=1\n"), "a:2 b:3 c:1");  // Open MPI
  EXPECT_EQ(hosts_in("me@a slots=2\nb slots=2 user=me\n"), "me@a:2 me@b:2");
  EXPECT_EQ(hosts_in("a:2\nme@b:3\n"), "a:2 me@b:3");                                  // MPICH, Intel MPI
  EXPECT_EQ(hosts_in("worker-1 slots=4\nworker-2 slots=4"), "worker-1:4 worker-2:4");  // DeepSpeed
  EXPECT_EQ(hosts_in("a\na\nb\nb\na\n", 8), "a:3 b:2");                                // PBS, LSF
  EXPECT_EQ(hosts_in("a slots=2\nb slots=1\na slots=3\n"), "a:5 b:1");                 // Open MPI adds up
  EXPECT_EQ(hosts_in("a 4 all.q@a UNDEFINED\nb 2 all.q@b <NULL>\n"), "a:4 b:2");       // Grid Engine
  EXPECT_EQ(hosts_in("a\nb\n", 3), "a:3 b:3");
  EXPECT_EQ(hosts_in("::1 slots=2\n[fd77::2]:3\nme@[fd77::3]:1\nfd77::4 5"), "::1:2 fd77::2:3 me@fd77::3:1 fd77::4:5");
}

TEST_F(Files, AMistakeInAHostFileIsNamedWithItsLine) {
  for (const auto& [lines, story] :
       std::map<std::string, std::string>{{"a slots=0", "hosts:1: 'slots=0' has no number of workers"},
                                          {"a slots=", "hosts:1: 'slots=' has no number of workers"},
                                          {"a slots=4 max_slots=2", "slots=4 is more than max_slots=2"},
                                          {"a:2 slots=3", "hosts:1: a has two numbers of workers, 2 and 3"},
                                          {"a:2\n[::1 slots=2", "hosts:2: '[::1' is not an IPv6 address in brackets"},
                                          {"[b] slots=2", "hosts:1: '[b]' is not an IPv6 address in brackets"},
                                          {"^a slots=2", "hosts:1: '^a' is not the name or address of a host"},
                                          {"-oProxyCommand=x slots=2", "hosts:1: "},
                                          {"a slots=2\nuser@ slots=2", "hosts:2: 'user@' names no host"},
                                          {"a binding=rr slots=2", "hosts:1: 'binding=rr' is not slots=N"},
                                          {"::1", "the number of workers of ::1 is missing; write [::1]:N"},
                                          {"a slots=1\nme@a slots=1", "host a is listed twice"}})
    EXPECT_TRUE(says(story_of([&lines = lines] { hosts_in(lines); }), story))
        << story_of([&lines = lines] { hosts_in(lines); });
}

TEST(Addresses, APortFollowsAnIpv6AddressInBrackets) {
  const auto parts = [](const std::string& words) {
    const auto all = tsrun::split_number(words);
    return all.host + (all.has_number ? " " + all.number : "");
  };
  for (const auto& [words, expected] : std::map<std::string, std::string>{{"a", "a"},
                                                                          {"a:1", "a 1"},
                                                                          {"10.0.0.1:", "10.0.0.1 "},
                                                                          {"::1", "::1"},
                                                                          {"::1:2950", "::1:2950"},
                                                                          {"::1:29500", "::1 29500"},
                                                                          {"[::1]", "::1"},
                                                                          {"[::1]:29500", "::1 29500"},
                                                                          {"fe80::1%eth0", "fe80::1%eth0"}})
    EXPECT_EQ(parts(words), expected);
  for (const auto* words : {"10.0.0.1:80", "[::1]:80", "[fe80::1%eth0]:80"})
    EXPECT_EQ(tsrun::words_of(tsrun::endpoint_of(words)), words);
}

TEST(Addresses, OfBothFamiliesAreListenedAtAndConnectedTo) {
  for (const auto* address : {"127.0.0.1", "::1"}) {
    if (!tsrun::is_own_address(tsrun::resolve(address))) continue;
    std::string why;
    tsrun::Descriptor listener;
    try {
      listener = tsrun::listen_at({address, 0});
    } catch (const ConfigError& error) {
      if (std::string(address) == "::1") GTEST_SKIP() << "no IPv6 here: " << error.what();
      throw;
    }
    const auto where = tsrun::local_endpoint(listener);
    EXPECT_EQ(where.address, address);
    const auto end = tsrun::connect_to(where, 5, why);
    ASSERT_TRUE(end) << why;
    EXPECT_EQ(tsrun::peer_endpoint(end).address, address);
    EXPECT_EQ(tsrun::interface_with(address).name, "lo");
  }
}

TEST(Cores, TrueSplitsThemEvenlyWithoutGapOrOverlap) {
  const std::vector<int> cores = {0, 4, 1, 5, 2, 6, 3, 7};
  for (const int workers : {1, 2, 3, 8}) {
    std::vector<int> all;
    for (int local = 0; local < workers; local++) {
      const auto share = tsrun::bound_cores("True", local, workers, cores);
      EXPECT_GE(share.size(), cores.size() / static_cast<std::size_t>(workers));
      all.insert(all.end(), share.begin(), share.end());
    }
    EXPECT_EQ(all, cores);
  }
  EXPECT_EQ(tsrun::bound_cores("true", 9, 10, {0, 1}), (std::vector<int>{1}));
  EXPECT_TRUE(tsrun::bound_cores("False", 0, 2, cores).empty());
}

TEST(Cores, AMapNamesThem) {
  const std::vector<int> cores = {0, 1, 2, 3, 4};
  const std::string map = R"({"device0": ["0-2", "4"], "device1": ["3"], "scheduler": ["0"]})";
  EXPECT_EQ(tsrun::bound_cores(map, 0, 2, cores), (std::vector<int>{0, 1, 2, 4}));
  EXPECT_EQ(tsrun::bound_cores(map, 1, 2, cores), (std::vector<int>{3}));
  EXPECT_TRUE(says(story_of([&] { tsrun::bound_cores(map, 2, 3, cores); }), "no entry \"device2\""));
  EXPECT_TRUE(says(story_of([&] { tsrun::bound_cores(R"({"device0": ["9"]})", 0, 1, cores); }), "core 9"));
  EXPECT_TRUE(
      says(story_of([&] { tsrun::bound_cores(R"({"device0": ["2-1"]})", 0, 1, cores); }), "'2-1' is not a range"));
  EXPECT_TRUE(says(story_of([&] { tsrun::bound_cores("{device0}", 0, 1, cores); }), "not a JSON map"));
  EXPECT_EQ(tsrun::core_list({4, 0, 2, 1}), "0-2,4");
}

TEST(WorkerEnvironment, NothingOfAnotherJobGetsIn) {
  tsrun::WorkerPlace place;
  place.rank = 3;
  place.workers = 4;
  place.local_workers = 2;
  place.job = "0a1b";
  place.restart = 2;
  const tsrun::Environment host = {{"PATH", "/bin"},
                                   {"PMIX_RANK", "7"},
                                   {"OMPI_COMM_WORLD_RANK", "7"},
                                   {"OMPI_MCA_pml", "cm"},
                                   {"TSRUN_KEY", "of the outer"},
                                   {"TESSERA_LAUNCH_JOB", "outer:7"},
                                   {"RANK", "7"}};
  const tsrun::Environment mpi = {{"PMIX_RANK", "3"}, {"OMPI_COMM_WORLD_RANK", "3"}, {"TSRUN_KEY", "secret"}};
  const auto all = tsrun::worker_environment(place, host, mpi, 8);
  EXPECT_EQ(all.at("PMIX_RANK"), "3");
  EXPECT_EQ(all.at("RANK"), "3");
  EXPECT_EQ(all.at("OMP_NUM_THREADS"), "4");
  EXPECT_EQ(all.at("TESSERA_LAUNCH_JOB"), "0a1b:2");
  EXPECT_EQ(all.count("TSRUN_KEY"), 0U);
  EXPECT_EQ(all.count("OMPI_MCA_pml"), 0U);
  EXPECT_EQ(tsrun::worker_environment(place, {{"OMPI_MCA_pml", "cm"}}, mpi, 8).at("OMPI_MCA_pml"), "cm");
  EXPECT_EQ(tsrun::worker_environment(place, {{"OMP_NUM_THREADS", "5"}}, mpi, 8).at("OMP_NUM_THREADS"), "5");
}

tsrun::WorkerEnd end_of(int rank, int code, int signal = 0) {
  tsrun::WorkerEnd end;
  end.rank = rank;
  end.code = code;
  end.signal = signal;
  return end;
}

TEST(RootCause, IsTheFirstThatFailedByItself) {
  auto victim = end_of(0, 1), stopped = end_of(1, 0);
  victim.lost_peer = true;
  stopped.alive = true;
  EXPECT_EQ(tsrun::root_cause({victim, stopped, end_of(2, 0), end_of(3, 0, 9), end_of(4, 7)})->rank, 3);
  EXPECT_EQ(tsrun::root_cause({stopped, victim})->rank, 0);
  EXPECT_EQ(tsrun::root_cause({end_of(0, 0), stopped}), nullptr);
  auto early = end_of(5, 0);
  early.unfinished = true;
  EXPECT_EQ(tsrun::root_cause({early})->exit_code(), 1);
}

TEST(RootCause, IsNoneThatMpiEndedSilentlyWhileAnotherDied) {
  auto victim = end_of(0, 1);
  victim.in_mpi_init = true;
  EXPECT_EQ(tsrun::root_cause({victim, end_of(2, 0, 9)})->rank, 2);
  EXPECT_EQ(tsrun::root_cause({victim, end_of(2, 7)})->rank, 2);
  auto lost = end_of(1, 1);
  lost.lost_peer = true;
  EXPECT_EQ(tsrun::root_cause({lost, victim})->rank, 0);
  EXPECT_NE(tsrun::story(victim, 4).find("ended with exit code 1 inside MPI_Init"), std::string::npos);
  victim.last_lines = {"no such device"};
  EXPECT_EQ(tsrun::root_cause({victim, end_of(2, 0, 9)})->rank, 0);
}

TEST(RootCause, ItsStoryHasRankHostPlaceEndAndLines) {
  auto end = end_of(5, 0, 9);
  end.host = "big";
  end.place = "tp 0 dp 1, iteration 12";
  end.for_memory = true;
  end.last_lines = {"a", "b"};
  const auto words = tsrun::story(end, 8);
  for (const auto* part :
       {"rank 5 of 8 on big (tp 0 dp 1, iteration 12)", "killed for memory", "its last 2 lines:\n  | a\n  | b"})
    EXPECT_TRUE(says(words, part)) << words;
  EXPECT_EQ(end.exit_code(), 137);
}

TEST(RootCause, ItsPlaceTellsHowManyStepsWereCompleted) {
  const auto steps = [](const std::string& place) {
    auto end = end_of(5, 0, 9);
    end.place = place;
    return end.completed_steps();
  };
  EXPECT_EQ(steps("tp 0 dp 1 pp 0, iteration 12"), 11);
  EXPECT_EQ(steps("tp 0 dp 1 pp 0, iteration 1"), 0);
  for (const auto* place : {"", "tp 0 dp 1", ", iteration ", ", iteration 0", ", iteration -3", ", iteration 12 of 20",
                            ", iteration 99999999999"})
    EXPECT_EQ(steps(place), -1) << place;
}

tsrun::HostInfo host(const std::string& name, const std::string& machine, int workers) {
  tsrun::HostInfo info;
  info.host = info.address = name;
  info.machine = machine;
  info.workers = workers;
  info.network = "10.0.0.0/8";
  return info;
}

TEST(Job, RanksGoHostByHost) {
  tsrun::Job job;
  job.hosts = {host("a", "x", 2), host("b", "y", 3)};
  job.workers = 5;
  EXPECT_EQ(job.host_of(1), 0U);
  EXPECT_EQ(job.host_of(2), 1U);
  const auto place = job.place_of(4, 1);
  EXPECT_EQ(place.local_rank, 2);
  EXPECT_EQ(place.local_workers, 3);
  EXPECT_EQ(place.node, 1);
  EXPECT_EQ(place.machine, 1);
  EXPECT_EQ(place.restart, 1);
  EXPECT_EQ(job.ranks_on(1), (std::vector<int>{2, 3, 4}));
}

TEST(Job, TheRanksOfALostHostGoToItsNeighbours) {
  tsrun::Job job;
  job.hosts = {host("a", "x", 2), host("b", "y", 3), host("c", "z", 1)};
  job.workers = 6;
  ASSERT_TRUE(job.remove_host(1));
  EXPECT_EQ(job.ranks_on(0), (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(job.ranks_on(1), (std::vector<int>{3, 4, 5}));
  EXPECT_EQ(job.hosts[1].host, "c");
  ASSERT_TRUE(job.remove_host(1));
  EXPECT_EQ(job.ranks_on(0), (std::vector<int>{0, 1, 2, 3, 4, 5}));
  EXPECT_FALSE(job.remove_host(0));
  EXPECT_EQ(job.hosts[0].workers, 6);
  job.hosts = {host("a", "x", 1), host("b", "y", 1), host("c", "z", 7)};
  ASSERT_TRUE(job.remove_host(1));
  EXPECT_EQ(job.hosts[0].workers, 2);
  EXPECT_EQ(job.hosts[1].workers, 7);
}

TEST(Job, TheRanksOfALostHostGoToTheFirstSpareWithRoomElseToSeveral) {
  using List = std::vector<int>;
  EXPECT_EQ(tsrun::ranks_for_spares(4, {}), List{});
  EXPECT_EQ(tsrun::ranks_for_spares(4, {2, 4, 8}), (List{0, 4, 0}));
  EXPECT_EQ(tsrun::ranks_for_spares(8, {2, 4, 4}), (List{2, 4, 2}));
  EXPECT_EQ(tsrun::ranks_for_spares(3, {2, 2}), (List{2, 1}));
  EXPECT_EQ(tsrun::ranks_for_spares(8, {2, 3}), (List{4, 4})) << "more than they have room for";
  EXPECT_EQ(tsrun::ranks_for_spares(8, {0, 3}), (List{0, 8}));
  EXPECT_EQ(tsrun::ranks_for_spares(8, {0, 0}), (List{0, 0}));
}

TEST(Job, ASpareTakesThePlaceOfALostHost) {
  tsrun::Job job;
  job.hosts = {host("a", "x", 2), host("b", "y", 3), host("c", "z", 1)};
  job.workers = 6;
  job.replace_host(1, {host("s", "u", 2), host("t", "v", 1)});
  ASSERT_EQ(job.hosts.size(), 4U);
  EXPECT_EQ(job.ranks_on(1), (std::vector<int>{2, 3}));
  EXPECT_EQ(job.ranks_on(2), (std::vector<int>{4}));
  EXPECT_EQ(job.hosts[3].host, "c");
  EXPECT_EQ(job.ranks_on(3), (std::vector<int>{5}));
  EXPECT_EQ(job.place_of(3, 0).machine, 1);
}

TEST(Job, FewerWorkersAreTheMostThatFitOnTheHostsThatAreLeft) {
  EXPECT_EQ(tsrun::most_ranks({2, 4, 8}, 7), 4);
  EXPECT_EQ(tsrun::most_ranks({2, 4, 8}, 8), 8);
  EXPECT_EQ(tsrun::most_ranks({4, 8}, 3), 0);
  EXPECT_EQ(tsrun::most_ranks({}, 8), 0);
  using List = std::vector<int>;
  EXPECT_EQ(tsrun::ranks_of_hosts(8, {4, 4, 4}, 0), (List{4, 4, 0}));
  EXPECT_EQ(tsrun::ranks_of_hosts(8, {4, 4, 4}, 2), (List{4, 0, 4})) << "the leading host has some";
  EXPECT_EQ(tsrun::ranks_of_hosts(6, {4, 4}, 0), (List{4, 2}));
  EXPECT_EQ(tsrun::ranks_of_hosts(9, {4, 4}, 0), (List{4, 5}));
}

TEST(Job, ProgramsAreToldTheNumberOfWorkersThatTheJobWasStartedWith) {
  tsrun::WorkerPlace place;
  place.workers = place.full_workers = 4;
  EXPECT_EQ(tsrun::worker_environment(place, {}, {}, 8).count("TESSERA_LAUNCH_FULL_WORLD"), 0U);
  place.workers = 2;
  const auto all = tsrun::worker_environment(place, {}, {}, 8);
  EXPECT_EQ(all.at("TESSERA_LAUNCH_FULL_WORLD"), "4");
  EXPECT_EQ(all.at("WORLD_SIZE"), "2");
}

TEST(Job, TwoShellsOfOneMachineAreOneHostForMpi) {
  tsrun::Job job;
  job.machine = "x";
  job.hosts = {host("a", "x", 2), host("a", "x", 2)};
  job.workers = 4;
  EXPECT_TRUE(job.is_local());
  EXPECT_EQ(job.place_of(3, 0).node, 1);
  EXPECT_EQ(job.place_of(3, 0).machine, 0);
  job.hosts.push_back(host("b", "y", 1));
  job.workers = 5;
  const auto words = tsrun::mpirun_words(job, tsrun::JobFolders({.id = "unit_test"}, 0, 2));
  EXPECT_NE(std::find(words.begin(), words.end(), "a:4,b:1"), words.end());
  EXPECT_NE(std::find(words.begin(), words.end(), "10.0.0.0/8"), words.end());
}

}  // namespace
}  // namespace tessera
