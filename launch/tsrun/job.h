#pragma once

#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "framework/log/log.h"
#include "framework/worker/job_record.h"
#include "framework/worker/shared_folder.h"
#include "launch/tsrun/host.h"
#include "launch/tsrun/worker_environment.h"

namespace tessera::tsrun {

/// Writes the messages of tsrun: to the screen, and with the time to scheduler.log. Never waits for a reader of the
/// screen.
class Reporter {
 public:
  /// Appends all further messages to `file`, too. Throws ConfigError if `file` is a symbolic link.
  void keep_in(const std::filesystem::path& file);
  /// Writes a message to the screen and to the file. Control characters are replaced with '?'.
  void say(const std::string& words, log::LogLevel level = log::LogLevel::info);
  /// Writes a message only to the file.
  void note(const std::string& words);
  /// Path of the file; empty: there is none.
  const std::string& file() const { return path_; }

 private:
  std::ofstream file_;
  std::string path_;
};

/// The two folders of a job on this host: one for small files ($TMPDIR or /tmp), one in memory (worker::job_folder).
/// Another tsrun of the job may use the same ones: one in another shell, or on a host that shares /dev/shm or /tmp.
/// The destructor deletes them unless another process of the job uses them (worker::SharedFolder); the last one then
/// deletes them, which is the guard (guard.h) or a supervisor (worker.h) if tsrun was killed.
class JobFolders {
 public:
  /// Creates the folders, or takes over those of a job with the id of `record` whose processes have all been killed.
  /// Holds memory for the state of the ranks [first, first + ranks) of this host (worker::held_state_file). Throws
  /// ConfigError if a folder cannot be created or another process has locked it, and IoError if the record cannot be
  /// written; then it leaves nothing.
  JobFolders(worker::JobRecord record, int first, int ranks);
  JobFolders(const JobFolders&) = delete;
  JobFolders& operator=(const JobFolders&) = delete;
  /// Holds memory for the state of the ranks [first, first + ranks), too; ranks that already have it are skipped.
  void hold(int first, int ranks);
  /// Deletes the state of all ranks, and records that the job has `workers` workers from now on. Throws Error or
  /// IoError.
  void forget(int workers);
  /// Writes the number `start` of the current start of the workers, from 0, into the record. Throws IoError.
  void record_start(int start);
  /// Keeps the folder in memory when this object is destroyed, so that the same command continues from the state and
  /// `tessera state` sees it. Returns false if the state is in memory that ends with this process.
  bool keep();
  /// Descriptor of the lock file. The lock is held while this process, or a process that inherited the descriptor,
  /// lives.
  int lock() const { return lock_.number(); }
  /// Deletes the files that a start of the workers left on this host, except the state of the program. Only for the
  /// leader between two starts, or if no other process of the job uses the folders.
  void clear() const;
  /// Whether another process of the job uses one of the folders.
  bool shared() const { return files_.has_other_users() || memory_.has_other_users(); }
  std::string files() const { return files_.path(); }
  std::string memory() const { return memory_.path(); }

 private:
  worker::JobRecord record_;
  int first_;
  worker::SharedFolder files_, memory_;
  // Closed before the folders are deleted, for which descriptors are needed.
  Descriptor lock_;
  std::map<int, Descriptor> held_;  ///< memory (memfd) for the state of each rank
};

/// A job: its options, and its hosts in the order of their ranks. A parameter `host` is an index into `hosts`.
struct Job {
  LaunchOptions options;
  std::vector<HostInfo> hosts;
  Endpoint leader;          ///< where workers and other hosts connect to the leader
  std::string id;           ///< identifies the job; part of the names of its folders
  std::string secret, key;  ///< `secret` authenticates hosts, `key` workers (secret.h)
  std::string salt;         ///< random text from which `key` is derived
  int workers = 0;
  int full_workers = 0;     ///< number of workers at the start of the job; `workers` may be less after a host was lost
  int lost_hosts = 0;       ///< number of hosts lost so far; their tsrun may connect again
  std::string master_addr;  ///< MASTER_ADDR of the workers
  int master_port = 0;      ///< MASTER_PORT of the workers

  std::string machine;  ///< HostInfo::machine of the leader
  std::string log_dir;  ///< folder of scheduler.log on the leader's host

  bool is_local() const;  ///< whether all workers run on the leader's machine
  /// Removes a lost host and distributes its workers to the hosts before and after it, so that ranks stay contiguous on
  /// each host and the other ranks keep their host. Returns false, and changes nothing, if it is the only host.
  bool remove_host(std::size_t host);
  /// Replaces a lost host by the hosts `by`; `workers` of each of them is the number of ranks it gets.
  void replace_host(std::size_t host, const std::vector<HostInfo>& by);
  /// Lowest rank on `host`.
  int first_rank(std::size_t host) const;
  std::vector<int> ranks_on(std::size_t host) const;
  std::size_t host_of(int rank) const;
  /// Describes the worker of `rank` in the start with number `restart`, from 0.
  WorkerPlace place_of(int rank, int restart) const;
  /// Name of the host for mpirun: its address, or its host name if another machine in the job has the same address.
  std::string mpi_name(std::size_t host) const;
  /// "b (10.77.0.2)": host name and address.
  std::string words_of(std::size_t host) const;
};

/// Returns how many of the `ranks` of a lost host each spare host gets; `room[i]` is the number of ranks for which
/// spare host i has room. All go to the first host with enough room; if none has, to several hosts in their order. If
/// all hosts together have too little room, those with room get more ranks than they have room for; a host without room
/// gets none.
std::vector<int> ranks_for_spares(int ranks, const std::vector<int>& room);

/// Returns the largest number in `possible` that is at most `most`; 0 if there is none.
int most_ranks(const std::vector<int>& possible, int most);

/// Returns how many of the `ranks` each host gets; `room[h]` is the number of ranks for which host h has room. Host
/// `first` is filled first, then the others in their order. If all hosts together have too little room, the last host
/// gets the rest.
std::vector<int> ranks_of_hosts(int ranks, const std::vector<int>& room, std::size_t first);

/// Returns the local workers, of `workers` on this host, that --tail_worker_log names: `list` is "0,2" or "-1" (all).
/// Ids that do not exist are ignored.
std::vector<int> tailed(const std::string& list, int workers);

/// Continues as a new process in the background without a terminal; the calling process prints where the logs are and
/// how to stop the job, and exits with code 0. Throws Error if no process can be started.
void go_on_alone(const std::string& log_dir);

/// Path of the library that restricts mpirun and its daemons to one network interface (launch/loopback): beside tsrun
/// in the build, in the library folder when installed. Empty if it is in neither.
std::string loopback_library();

/// Command line of mpirun that starts `tsrun --as-worker` once for each worker. The only place that knows the options
/// of Open MPI's launcher. Throws ConfigError if mpirun is not found.
std::vector<std::string> mpirun_words(const Job& job, const JobFolders& folders);
/// Environment of mpirun: that of this process without the variables of Slurm and of another MPI job, plus the
/// variables by which workers find the leader. `restart`: number of this start, from 0.
Environment mpirun_environment(const Job& job, const JobFolders& folders, int restart);

}  // namespace tessera::tsrun
