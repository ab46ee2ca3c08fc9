#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace tessera::worker {

/// What tsrun writes about a job into the folder of its state (TESSERA_LAUNCH_FOLDER), on each host: whoever continues
/// or deletes that state after tsrun was killed reads it.
struct JobRecord {
  std::string id{};                    ///< names the folder
  std::vector<std::string> command{};  ///< all words of tsrun; empty if another host leads the job
  std::vector<std::string> program{};  ///< the words that each worker runs
  std::string folder{};                ///< the working directory of that command
  int workers = 0;                     ///< of the job
  int start = 0;                       ///< number of the current start of the workers, from 0
  pid_t process = 0;                   ///< tsrun
};

/// The folder in memory of a job: /dev/shm/tsrun.ID.shm.
std::filesystem::path job_folder(const std::string& id);

// Files in it. Each tsrun of the job has its own record and lock, named by the first rank of its host; -1: it has none.
std::filesystem::path job_record_file(const std::filesystem::path& folder, int first_rank);
/// tsrun, or the process that stays when tsrun is killed, has an exclusive flock on it.
std::filesystem::path job_lock_file(const std::filesystem::path& folder, int first_rank);
/// Exists once a worker of this host told that it keeps its state in the folder.
std::filesystem::path kept_file(const std::filesystem::path& folder);
/// Exists if this worker ended well after tsrun was killed: nothing of its state is needed any more.
std::filesystem::path saved_file(const std::filesystem::path& folder, int rank);

/// Replaces the file at `path`. Throws IoError.
void write(const JobRecord& record, const std::filesystem::path& path);

/// A job whose folder is on this host.
struct JobOnHost {
  JobRecord record;  ///< of the tsrun that started last
  std::filesystem::path folder;
  std::uint64_t bytes = 0;         ///< of the state files
  bool keeps_state = false;        ///< its program keeps its state there
  bool guarded = false;            ///< a tsrun, or the process that stays for it, lives
  std::vector<pid_t> processes{};  ///< of its workers, that live
  bool lives() const { return guarded || !processes.empty(); }
};
/// Those of this user, sorted by id.
std::vector<JobOnHost> jobs_of_host();

}  // namespace tessera::worker
