#include "launch/tsrun/options.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <sstream>

#include "launch/tsrun/option_table.h"
#include "launch/tsrun/shell_completion.h"
#include "tests/story.h"

namespace tessera {
namespace {

tsrun::LaunchOptions read(const std::vector<std::string>& words,
                          const std::map<std::string, std::string>& environment = {}) {
  return tsrun::read_options(words, environment);
}

TEST(Options, AValueStandsBehindAnEqualSignOrASpace) {
  const auto options = read({"--worker_num", "8", "--local_worker_num=8", "--master_port=8848", "--log_dir=msrun_log",
                             "--join=True", "--cluster_time_out=300", "pretrain_gpt.py", "--worker_num=9"});
  EXPECT_EQ(options.worker_num, 8);
  EXPECT_EQ(options.local_worker_num, 8);
  EXPECT_EQ(options.master_port, 8848);
  EXPECT_EQ(options.log_dir, "msrun_log");
  EXPECT_TRUE(options.join);
  EXPECT_EQ(options.cluster_time_out, 300);
  EXPECT_EQ(options.program, (std::vector<std::string>{"pretrain_gpt.py", "--worker_num=9"}));
  EXPECT_EQ(options.dialect, tsrun::Dialect::msrun);
}

TEST(Options, DashAndUnderscoreAreOneLetterAndBriefNamesAreRead) {
  for (const auto* name : {"--nproc-per-node", "--nproc_per_node"}) {
    const auto options = read({name, "4", "-r", "3", "--max-restarts=2", "train"});
    EXPECT_EQ(options.nproc_per_node, 4);
    EXPECT_EQ(options.max_restarts, 2);
    EXPECT_EQ(options.tail, "");
  }
  EXPECT_EQ(read({"--nnodes=1", "-r3", "-t3", "train"}).tail, "-1");
}

TEST(Options, TruthIsReadInAnyCase) {
  for (const auto* word : {"false", "False", "FALSE"})
    EXPECT_FALSE(read({"--worker_num=1", text("--join=", word), "x"}).join);
  EXPECT_TRUE(read({"--worker_num=1", "--join=tRUE", "x"}).join);
}

TEST(Options, NeutralOptionsStandBesideBothDialects) {
  for (const auto* exclusive : {"--worker_num=4", "--nproc_per_node=4"})
    EXPECT_EQ(read({exclusive, "--node_rank=1", "--master_addr=a", "--master_port=7000", "--log_dir=d", "x"}).node_rank,
              1);
}

TEST(Options, OptionsOfTwoDialectsContradict) {
  const auto story = story_of([] { read({"--worker_num=4", "--nproc_per_node=4", "x"}); });
  EXPECT_TRUE(says(story, "--worker_num is msrun's and --nproc_per_node is torchrun's")) << story;
}

TEST(Options, EveryMistakeIsNamedAtOnce) {
  const auto story = story_of([] { read({"--worker_nun=4", "--cluster_time_out=soon", "--join=yes"}); });
  for (const auto* words :
       {"did you mean '--worker_num'", "'soon' is not a whole number", "'yes' is neither", "PROGRAM is missing"})
    EXPECT_TRUE(says(story, words)) << story;
}

TEST(Options, VariablesOfPetGiveTorchrunsOptionsUnlessTheLineIsMsruns) {
  const std::map<std::string, std::string> pet = {
      {"PET_NPROC_PER_NODE", "3"}, {"PET_NNODES", "2"}, {"PET_STANDALONE", "0"}};
  const auto options = read({"--nnodes=4", "x"}, pet);
  EXPECT_EQ(options.nproc_per_node, 3);
  EXPECT_EQ(options.nnodes, 4);
  EXPECT_FALSE(read({"--worker_num=2", "x"}, pet).nproc_per_node);
  EXPECT_TRUE(says(story_of([] { read({"x"}, {{"PET_NPROC_PER_NODE", "many"}}); }), "PET_NPROC_PER_NODE"));
}

TEST(Options, MindIosVariablesAreRead) {
  EXPECT_TRUE(read({"--worker_num=2", "x"}).keep_state);
  for (const auto* word : {"0", "false", "False"})
    EXPECT_FALSE(read({"--worker_num=2", "x"}, {{"ENABLE_TTP", word}}).keep_state) << word;
  EXPECT_TRUE(read({"--worker_num=2", "x"}, {{"ENABLE_TTP", "1"}}).keep_state);
  EXPECT_EQ(read({"--worker_num=2", "x"}, {{"TTP_OT", "360"}}).save_time_out, 360);
  EXPECT_FALSE(read({"--worker_num=2", "x"}).save_time_out);
  EXPECT_EQ(read({"--worker_num=2", "x"}, {{"TTP_OT", "360"}}).longest_without_leader(), 375);
  EXPECT_EQ(read({"--worker_num=2", "x"}, {{"TTP_OT", "2147483647"}}).longest_without_leader(), 2147483647);
  const auto story = story_of([] { read({"--worker_num=2", "x"}, {{"ENABLE_TTP", "maybe"}, {"TTP_OT", "0"}}); });
  EXPECT_TRUE(says(story, "ENABLE_TTP: 'maybe' is neither 1 nor 0, nor true nor false") &&
              says(story, "TTP_OT: 0 is out of range"))
      << story;
}

TEST(Options, ASecretStandsBesideBothDialectsButNotOnTheLine) {
  for (const auto* exclusive : {"--worker_num=4", "--nproc-per-node=4"}) {
    const auto options = read({exclusive, "--secret-file", "a", "--require_secret", "x"});
    EXPECT_EQ(options.secret_file, "a");
    EXPECT_TRUE(options.require_secret);
  }
  EXPECT_FALSE(read({"--worker_num=4", "x"}).require_secret);
  const auto story = story_of([] { read({"--worker_num=4", "--secret=0123456789abcdef", "x"}); });
  EXPECT_TRUE(says(story, "there is no option '--secret'")) << story;
  EXPECT_FALSE(says(story, "0123456789abcdef")) << story;
}

TEST(Options, AHostEndsItsWorkersBeforeTheyStartElsewhere) {
  const auto story = [](const std::string& lease, const std::string& silence, const std::string& leader) {
    return story_of([&] {
      read({"--worker_num=4", "--host_lease=" + lease, "--host_time_out=" + silence, "--leader_time_out=" + leader,
            "x"});
    });
  };
  EXPECT_EQ(story("6", "8", "15"), "no error");
  EXPECT_EQ(story("58", "60", "59"), "no error");
  EXPECT_TRUE(says(story("7", "8", "15"), "--host_lease 7 is too long for --host_time_out 8")) << story("7", "8", "15");
  EXPECT_TRUE(says(story("7", "8", "15"), "of at most 6 s, or a --host_time_out of at least 9 s"));
  EXPECT_TRUE(says(story("58", "60", "58"), "--leader_time_out 58 is not longer than --host_lease 58"));
  const tsrun::LaunchOptions defaults = read({"--worker_num=4", "x"});
  EXPECT_EQ(defaults.host_lease, 6);
  EXPECT_EQ(defaults.host_time_out, 8);
  EXPECT_EQ(defaults.leader_time_out, 15);
  EXPECT_EQ(defaults.stop_time_out, 30);
}

TEST(Options, SizesFollowTheDialect) {
  const auto msrun = tsrun::sizes_of(read({"--worker_num=16", "x"}));
  EXPECT_EQ(msrun.total, 16);
  EXPECT_EQ(msrun.local, 8);
  EXPECT_FALSE(msrun.one_host);
  EXPECT_TRUE(tsrun::sizes_of(read({"--worker_num=4", "--local_worker_num=4", "--node_rank=3", "x"})).one_host);
  const auto torchrun = tsrun::sizes_of(read({"--nnodes=2:2", "--nproc_per_node=3", "x"}));
  EXPECT_EQ(torchrun.total, 6);
  EXPECT_EQ(torchrun.local, 3);
  EXPECT_TRUE(tsrun::sizes_of(read({"--standalone", "--nproc_per_node=cpu", "x"})).total > 0);
}

TEST(Options, ARendezvousNamesTheHead) {
  const auto options =
      read({"--nnodes=2", "--rdzv_backend=c10d", "--rdzv_endpoint=big:1234", "--rdzv_conf=join_timeout=90,x=1", "x"});
  EXPECT_EQ(options.master_addr, "big");
  EXPECT_EQ(options.master_port, 1234);
  EXPECT_EQ(options.cluster_time_out, 90);
  EXPECT_EQ(options.notes.size(), 1U);
  EXPECT_EQ(read({"--nnodes=2", "--rdzv_endpoint=big", "x"}).master_port, 29400);
  for (const auto& [endpoint, address] : std::map<std::string, std::string>{
           {"[::1]:1234", "::1"}, {"[fd77::1]:1234", "fd77::1"}, {"10.0.0.1:1234", "10.0.0.1"}}) {
    const auto v6 = read({"--nnodes=2", "--rdzv_endpoint=" + endpoint, "x"});
    EXPECT_EQ(v6.master_addr, address);
    EXPECT_EQ(v6.master_port, 1234);
  }
  for (const auto* endpoint : {"::1", "[::1]"}) {
    const auto v6 = read({"--nnodes=2", text("--rdzv_endpoint=", endpoint), "x"});
    EXPECT_EQ(v6.master_addr, "::1");
    EXPECT_EQ(v6.master_port, 29400);
    EXPECT_EQ(read({"--worker_num=2", text("--master_addr=", endpoint), "x"}).master_addr, "::1");
  }
  EXPECT_TRUE(says(story_of([] { read({"--nnodes=2", "--rdzv_endpoint=[::1", "x"}); }), "IPv6 address in brackets"));
  EXPECT_TRUE(says(story_of([] { read({"--nnodes=2", "--rdzv_backend=etcd-v2", "x"}); }), "etcd-v2"));
}

TEST(Options, WhatCannotBeIsRefusedWithItsReason) {
  for (const auto& [word, reason] : std::map<std::string, std::string>{{"--nnodes=1:2", "--after_host_loss shrink"},
                                                                       {"--after_host_loss=wait", "neither"},
                                                                       {"-m", "python modules"},
                                                                       {"--nproc_per_node=gpu", "no gpu"}})
    EXPECT_TRUE(says(story_of([&word = word] { read({word, "x"}); }), reason)) << word;
  EXPECT_TRUE(says(story_of([] { read({"--worker_num=1", "--sim_level=0", "x"}); }), "tessera check"));
}

TEST(Options, SparesBelongToAListOfHostsAndASpareToTheSameCommandOnEachHost) {
  EXPECT_EQ(read({"--hosts=a:8", "--spares", "b:8", "train"}).spares, "b:8");
  EXPECT_TRUE(read({"--worker_num=8", "--local_worker_num=4", "--spare", "train"}).spare);
  for (const auto& [words, reason] : std::map<std::vector<std::string>, std::string>{
           {{"--worker_num=8", "--local_worker_num=4", "--spares=b:8", "train"}, "--spares needs --hosts"},
           {{"--hosts=a:8", "--spare", "train"}, "list the spare hosts in --spares"},
           {{"--worker_num=8", "--spare", "train"}, "all workers are on one host"}})
    EXPECT_TRUE(says(story_of([&words = words] { read(words); }), reason)) << reason;
}

TEST(Options, CompletionAndManualHaveEveryOption) {
  for (const auto* shell : {"bash", "zsh", "fish"}) {
    EXPECT_EQ(read({"--completion", shell}).completion, shell);
    std::ostringstream out;
    tsrun::print_completion(out, shell);
    for (const auto& row : tsrun::option_table())
      EXPECT_TRUE(says(out.str(), shell == std::string("fish") ? "-l " + row.name.substr(2) + " " : row.name + " "))
          << shell << " " << row.name;
  }
  EXPECT_TRUE(says(story_of([] { read({"--completion", "csh"}); }), "'csh' is neither bash, zsh nor fish"));
  EXPECT_TRUE(says(story_of([] { read({"--completion"}); }), "--completion needs a value"));
  EXPECT_TRUE(read({"--man"}).manual);
  std::ostringstream page;
  tsrun::print_manual(page);
  for (const auto& row : tsrun::option_table()) {
    auto name = row.name;
    name.replace(0, 2, "\\-\\-");
    EXPECT_TRUE(says(page.str(), "\\fB" + name + "\\fR")) << name;
  }
}

TEST(Options, APathMayBeginWithTheHomeFolder) {
  const std::string home = std::getenv("HOME") != nullptr ? std::getenv("HOME") : "";
  if (home.empty()) GTEST_SKIP() << "no HOME";
  const auto options =
      read({"--worker_num=1", "--log_dir=~/logs", "--hostfile", "~/hosts", "--worker_log_name=~/x", "~/x"});
  EXPECT_EQ(options.log_dir, home + "/logs");
  EXPECT_EQ(options.host_file, home + "/hosts");
  EXPECT_EQ(options.worker_log_name, "~/x");
  EXPECT_EQ(options.program[0], "~/x");
}

TEST(Options, HelpNamesEveryOptionOnce) {
  std::ostringstream out;
  tsrun::print_help(out);
  for (const auto& row : tsrun::option_table()) {
    const auto at = out.str().find(row.name + (row.value.empty() ? " " : " " + row.value));
    EXPECT_NE(at, std::string::npos) << row.name;
  }
}

}  // namespace
}  // namespace tessera
