#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace tessera::worker {

/// Description of a job that tsrun writes on each host into the folder of the job's state (TESSERA_LAUNCH_FOLDER). It
/// is read when that state is continued or deleted after tsrun was killed.
struct JobRecord {
  std::string id{};                    ///< id of the job; part of the folder's name
  std::vector<std::string> command{};  ///< command line of tsrun; empty if another host leads the job
  std::vector<std::string> program{};  ///< command line of each worker
  std::string folder{};                ///< working directory of `command`
  int workers = 0;                     ///< number of workers of the job
  int start = 0;                       ///< number of the current start of the workers, from 0
  pid_t process = 0;                   ///< process id of tsrun
};

/// Path of the job's folder in memory: /dev/shm/tsrun.ID.shm, or in /tmp if /dev/shm cannot be written.
std::filesystem::path job_folder(const std::string& id);

// Files in that folder. Each tsrun of the job on this host has its own record and lock, named by the lowest rank of its
// host, or -1 if no rank runs on it.
std::filesystem::path job_record_file(const std::filesystem::path& folder, int first_rank);
/// tsrun holds an exclusive flock on this file; when tsrun is killed, the process that stays for it holds the lock.
std::filesystem::path job_lock_file(const std::filesystem::path& folder, int first_rank);
/// Exists after a worker of this host has reported that it keeps its state in the folder.
std::filesystem::path kept_file(const std::filesystem::path& folder);
/// Whether a file in that folder is state of the program, or kept_file(); not a file of tsrun, nor a link to held
/// state.
bool is_state_of_program(const std::filesystem::path& file);
/// Exists if the worker of `rank` ended with success after tsrun was killed: its state is no longer needed.
std::filesystem::path saved_file(const std::filesystem::path& folder, int rank);

/// The ranks that have a state file (state_file) in a folder, ascending.
std::vector<int> ranks_with_state(const std::filesystem::path& folder);
/// Process id of the tsrun that leads the job of a folder, according to its record; 0: no record on this host has one.
pid_t leading_process(const std::filesystem::path& folder);

/// Writes the record to `path`; replaces an existing file atomically. Throws IoError.
void write(const JobRecord& record, const std::filesystem::path& path);

/// A job that has a folder on this host.
struct JobOnHost {
  JobRecord record;  ///< record of the tsrun that started last
  std::filesystem::path folder;
  std::uint64_t bytes = 0;   ///< size of the state files
  bool keeps_state = false;  ///< its program keeps its state in the folder
  /// A tsrun, the process that stays for it, or another user of the folder (SharedFolder) is alive, on this host or on
  /// another one with the same memory.
  bool guarded = false;
  std::vector<pid_t> processes{};  ///< its processes that are alive
  /// Whether any process of the job is alive.
  bool lives() const { return guarded || !processes.empty(); }
};
/// The jobs on this host that belong to this user, sorted by id. Folders that cannot be read are left out.
std::vector<JobOnHost> jobs_of_host();

}  // namespace tessera::worker
