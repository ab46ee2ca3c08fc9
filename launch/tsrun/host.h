#pragma once

#include <string>
#include <vector>

#include "launch/tsrun/options.h"
#include "launch/tsrun/process.h"

namespace tessera::tsrun {

std::string host_name();

/// The way by which an address of this host is reached: "eth0", 10.77.0.1, and the network "10.77.0.0/24".
struct Interface {
  std::string name, address, network;
};
/// The interface that has `address`. Throws ConfigError, with all that there are, when none has.
Interface interface_with(const std::string& address);
bool is_own_address(const std::string& address);

/// What a host brings to the job: told to the leader by the tsrun on it.
struct HostInfo {
  int node_rank = -1;  ///< as given; -1: to be decided
  int workers = 0;
  std::string host, address, interface, network;
  std::string alias;    ///< the name it must take while the job runs, when another host has its own; else empty
  std::string machine;  ///< equal for two that see the same processes, network and files
  std::string tsrun;    ///< the path of this program there
  std::string folder;   ///< it works in
  std::string log_dir, worker_log_name, bind_core;
  std::vector<std::string> program;  ///< with its full path
  std::vector<std::string> given;    ///< what must be equal on all hosts: "--worker_num 8", "tessera", ...
  Environment environment;
  int cores = 1;
  std::string left_job;  ///< the id of a job with the same line whose state is in this host's memory; empty: none
  int left_start = 0;    ///< of that job, the last
  int left_workers = 0;  ///< of that job
  bool spare = false;    ///< it gets ranks only when another host is lost; `workers`: how many it has room for
  std::string called;    ///< the leader's: its name in --hosts or --spares
  int room = 0;          ///< the leader's: `workers` when it came, which may be another number since a host was lost
  std::string problem;   ///< why it cannot take part; empty: it can
};

/// This host's, whose way to the leader is `address`. Never throws: what is wrong here is told in `problem`.
HostInfo describe_this_host(const LaunchOptions& options, const std::string& address);

/// What of HostInfo::given two hosts do not have alike, in words; empty: nothing.
std::string difference(const HostInfo& first, const HostInfo& other);

/// Where the log of a rank on that host goes.
std::string log_of(const HostInfo& host, int rank);

}  // namespace tessera::tsrun
