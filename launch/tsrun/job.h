#pragma once

#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "framework/log/log.h"
#include "framework/worker/job_record.h"
#include "launch/tsrun/host.h"
#include "launch/tsrun/worker_environment.h"

namespace tessera::tsrun {

/// The messages of tsrun: to the screen, and with the time to scheduler.log. Nothing waits for a reader.
class Reporter {
 public:
  /// Everything also goes to this file from now on; it grows over restarts.
  void keep_in(const std::filesystem::path& file);
  void say(const std::string& words, log::LogLevel level = log::LogLevel::info);
  /// Only to the file.
  void note(const std::string& words);
  /// That file; empty: there is none.
  const std::string& file() const { return path_; }

 private:
  std::ofstream file_;
  std::string path_;
};

/// Two folders of one name on every host of the job, one for small files, one in memory; deleted with the object, and
/// by whoever is the last when tsrun itself was killed (guard.h).
class JobFolders {
 public:
  /// Makes them, or takes over those of a job with this id whose processes have all been killed. Holds memory for the
  /// state of the ranks [first, first + ranks) of this host: see worker::held_state_file. Throws ConfigError if a
  /// living job has them.
  JobFolders(worker::JobRecord record, int first, int ranks);
  ~JobFolders();
  JobFolders(const JobFolders&) = delete;
  JobFolders& operator=(const JobFolders&) = delete;
  /// The same for more ranks.
  void hold(int first, int ranks);
  /// Deletes the state of all ranks: from now on the job has `workers`.
  void forget(int workers);
  /// Writes into the record that the workers start for the time `start`.
  void record_start(int start);
  /// The state stays when this object ends, for the same command or `tessera state`. False if it cannot: it is in
  /// memory that ends with this process.
  bool keep();
  /// Locked while this process lives, and those that inherited it.
  int lock() const { return lock_.number(); }
  /// Deletes what a start of the workers left on this host, but not the state of the program.
  void clear() const;
  const std::string& files() const { return files_; }
  const std::string& memory() const { return memory_; }

 private:
  worker::JobRecord record_;
  int first_;
  std::string files_, memory_;
  Descriptor lock_;
  std::map<int, Descriptor> held_;  ///< by rank
  bool kept_ = false;
};

/// All hosts together, in the order of their ranks.
struct Job {
  LaunchOptions options;
  std::vector<HostInfo> hosts;
  Endpoint leader;          ///< where workers and other hosts find us
  std::string id;           ///< names the folders and the job
  std::string secret, key;  ///< what other hosts and what workers have to know (secret.h)
  std::string salt;         ///< of the key
  int workers = 0;
  int full_workers = 0;     ///< that it was started with; `workers` may be fewer after the loss of a host
  int lost_hosts = 0;       ///< so many so far; their tsrun may come again
  std::string master_addr;  ///< told to the workers
  int master_port = 0;      ///< told to the workers

  std::string machine;  ///< of the leader
  std::string log_dir;  ///< of the leader: scheduler.log

  bool is_local() const;  ///< all workers are on the leader's machine
  /// Deals the workers of a host that is lost out to its neighbours, so that ranks still go host by host and those of
  /// the other hosts stay. False if it is the only one: then nothing changes.
  bool remove_host(std::size_t host);
  /// Puts these in the place of a host that is lost; `workers` of each says how many of its ranks it gets.
  void replace_host(std::size_t host, const std::vector<HostInfo>& by);
  int first_rank(std::size_t host) const;
  std::vector<int> ranks_on(std::size_t host) const;
  std::size_t host_of(int rank) const;
  WorkerPlace place_of(int rank, int restart) const;
  /// What MPI calls the host: its address, or its name where several have one address.
  std::string mpi_name(std::size_t host) const;
  /// "host b (10.77.0.2)".
  std::string words_of(std::size_t host) const;
};

/// How many ranks of a lost host, `ranks` in all, each spare host gets: all go to the first that has room for them,
/// else to several in their order. If all together have too little room, each gets more than it has room for; one
/// without any gets none.
std::vector<int> ranks_for_spares(int ranks, const std::vector<int>& room);

/// The largest of the numbers of ranks `possible` that is at most `most`; 0: there is none.
int most_ranks(const std::vector<int>& possible, int most);

/// How many of the `ranks` each host gets, that has room for so many: host `first` is filled first, then the others in
/// their order. If all have too little room, the last one gets the rest.
std::vector<int> ranks_of_hosts(int ranks, const std::vector<int>& room, std::size_t first);

/// The local workers that --tail_worker_log names among so many; ids that do not exist name nobody.
std::vector<int> tailed(const std::string& list, int workers);

/// Leave the terminal, which is told where the logs are and how to stop us: the caller continues as another process
/// that has no screen.
void go_on_alone(const std::string& log_dir);

/// Path of the library that keeps mpirun and its daemons on one interface (launch/loopback): beside tsrun in the build,
/// in the library folder when installed. Empty if it is in neither.
std::string loopback_library();

/// The line that starts `tsrun --as-worker` once for each worker: all that we know about Open MPI's launcher.
std::vector<std::string> mpirun_words(const Job& job, const JobFolders& folders);
/// What it must not know of Slurm or of another MPI job that we are in, and what the workers need to find us.
Environment mpirun_environment(const Job& job, const JobFolders& folders, int restart);

}  // namespace tessera::tsrun
