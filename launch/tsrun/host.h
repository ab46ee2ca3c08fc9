#pragma once

#include <string>
#include <vector>

#include "launch/tsrun/options.h"
#include "launch/tsrun/process.h"

namespace tessera::tsrun {

std::string host_name();

/// A network interface of this host with one of its addresses and the network of that, for example "eth0", "10.77.0.1",
/// "10.77.0.0/24", or "eth0", "fd77::1", "fd77::/64".
struct Interface {
  std::string name, address, network;
};
/// Returns the interface of this host that has `address`. Throws ConfigError, which lists all addresses of this host,
/// if none has.
Interface interface_with(const std::string& address);
bool is_own_address(const std::string& address);

/// What the leader knows about one host of the job. The tsrun on that host fills it in and sends it.
struct HostInfo {
  int node_rank = -1;  ///< --node_rank; -1: the leader decides
  int workers = 0;
  std::string host, address, interface, network;
  std::string alias;  ///< host name it must use while the job runs, because another host has the same name; else empty
  std::string machine;  ///< equal for two tsrun that share kernel, processes, network and files
  std::string tsrun;    ///< path of the tsrun executable on that host
  std::string folder;   ///< working directory of the program
  std::string log_dir, worker_log_name, bind_core;
  std::vector<std::string> program;  ///< command line of the program; the first word is a full path
  std::vector<std::string>
      given;  ///< what must be equal on all hosts, as text: options, command line, checksums of files
  Environment environment;
  int cores = 1;
  std::string left_job;  ///< id of a killed job with the same command whose state is in this host's memory; empty: none
  int left_start = 0;    ///< number of the last start of `left_job`
  int left_workers = 0;  ///< number of workers of `left_job`
  bool spare = false;    ///< gets ranks only when another host is lost; then `workers` is the number it can take
  std::string called;    ///< set by the leader: name of the host in --hosts or --spares; else empty
  int room = 0;         ///< set by the leader: `workers` at the start of the job; `workers` changes when a host is lost
  pid_t process = 0;    ///< process id of its tsrun on its machine
  std::string problem;  ///< why this host cannot take part; empty: it can
};

/// Describes this host. `address`: the address of this host that the leader sees. Never throws: an error is reported in
/// `problem`. Creates the log folder.
HostInfo describe_this_host(const LaunchOptions& options, const std::string& address);

/// Process id of the tsrun of a host if that runs on this machine; 0: it does not.
pid_t process_here(const HostInfo& host);
/// Process id of the tsrun that leads the job, if it runs on this host; 0: it does not. `memory`: the job's folder in
/// memory.
pid_t process_of_leader(const std::string& memory);

/// Returns a sentence about the first entry of HostInfo::given that differs between two hosts; empty: all are equal.
std::string difference(const HostInfo& first, const HostInfo& other);

/// Path of the log file of `rank` on that host; {ip} and {hostname} in the log name are replaced.
std::string log_of(const HostInfo& host, int rank);

}  // namespace tessera::tsrun
