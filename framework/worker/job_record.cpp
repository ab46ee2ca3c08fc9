#include "framework/worker/job_record.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <optional>

#include "framework/base/files.h"
#include "framework/base/json.h"
#include "framework/worker/shared_folder.h"

namespace tessera::worker {
namespace {

namespace fs = std::filesystem;

constexpr const char *folder_begins = "tsrun.", *folder_ends = ".shm", *record_begins = "state.job.",
                     *lock_begins = "state.lock.";

fs::path memory() { return access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp"; }

bool begins_with(const std::string& words, const std::string& with) { return words.rfind(with, 0) == 0; }

std::optional<JobRecord> read_record(const fs::path& path) {
  try {
    const auto json = parse_json(read_file(path));
    JobRecord record;
    json.at("id").get_to(record.id);
    json.at("command").get_to(record.command);
    json.at("program").get_to(record.program);
    json.at("folder").get_to(record.folder);
    json.at("workers").get_to(record.workers);
    json.at("start").get_to(record.start);
    json.at("process").get_to(record.process);
    return record;
  } catch (const std::exception&) {  // of a tsrun that was killed while it created the folder, or of another version
    return std::nullopt;
  }
}

bool is_locked(const fs::path& path) {
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  const bool locked = file >= 0 && flock(file, LOCK_SH | LOCK_NB) != 0;
  if (file >= 0) close(file);
  return locked;
}

/// Whether the process has the folder in the environment variables that tsrun sets for its child processes.
bool is_of_job(const fs::path& process, const std::string& folder) {
  std::ifstream file(process / "environ");
  for (std::string one; std::getline(file, one, '\0');)
    if (one == "TESSERA_LAUNCH_FOLDER=" + folder ||
        (begins_with(one, "TSRUN_FOLDERS=") && one.find(":" + folder) != std::string::npos))
      return true;
  return false;
}

std::vector<pid_t> processes_of(const std::string& folder) {
  std::vector<pid_t> all;
  std::error_code gone;
  for (fs::directory_iterator entry("/proc", gone), end; !gone && entry != end; entry.increment(gone)) {
    const auto name = entry->path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos || !is_of_job(entry->path(), folder)) continue;
    all.push_back(static_cast<pid_t>(std::stol(name)));
  }
  return all;
}

std::optional<JobOnHost> job_in(const fs::path& folder) {
  JobOnHost job;
  job.folder = folder;
  bool found = false;
  std::error_code gone;
  for (fs::directory_iterator entry(folder, gone), end; !gone && entry != end; entry.increment(gone)) {
    const auto name = entry->path().filename().string();
    std::error_code absent;
    if (begins_with(name, record_begins)) {
      const auto record = read_record(entry->path());
      if (record && (!found || record->start > job.record.start ||
                     (record->start == job.record.start && job.record.command.empty())))
        job.record = *record;
      found = found || record;
    } else if (begins_with(name, lock_begins)) {
      job.guarded = job.guarded || is_locked(entry->path());
    } else if (begins_with(name, "state.")) {
      const auto bytes = fs::file_size(entry->path(), absent);  // for a link, the size of the memory that it refers to
      if (!absent) job.bytes += bytes;
    }
  }
  if (!found) return std::nullopt;
  job.guarded = job.guarded || SharedFolder::is_used(folder);
  job.keeps_state = fs::exists(kept_file(folder), gone);
  job.processes = processes_of(folder);
  return job;
}

}  // namespace

fs::path job_folder(const std::string& id) { return memory() / (folder_begins + id + folder_ends); }

fs::path job_record_file(const fs::path& folder, int first_rank) {
  return folder / (record_begins + std::to_string(first_rank));
}
fs::path job_lock_file(const fs::path& folder, int first_rank) {
  return folder / (lock_begins + std::to_string(first_rank));
}
fs::path kept_file(const fs::path& folder) { return folder / "state.kept"; }
bool is_state_of_program(const fs::path& file) {
  const auto name = file.filename().string();
  return begins_with(name, "state.") && !begins_with(name, record_begins) && !begins_with(name, lock_begins) &&
         name != SharedFolder::users_file && !fs::is_symlink(file);
}
fs::path saved_file(const fs::path& folder, int rank) { return folder / ("saved." + std::to_string(rank)); }

std::vector<int> ranks_with_state(const fs::path& folder) {
  std::vector<int> ranks;
  std::error_code gone;
  for (fs::directory_iterator entry(folder, gone), end; !gone && entry != end; entry.increment(gone)) {
    const auto name = entry->path().filename().string();
    const auto number = begins_with(name, "state.") ? name.substr(6) : "";
    if (!number.empty() && number.size() < 9 && number.find_first_not_of("0123456789") == std::string::npos)
      ranks.push_back(std::stoi(number));
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

pid_t leading_process(const fs::path& folder) {
  std::error_code gone;
  for (fs::directory_iterator entry(folder, gone), end; !gone && entry != end; entry.increment(gone)) {
    if (!begins_with(entry->path().filename().string(), record_begins)) continue;
    const auto record = read_record(entry->path());
    if (record && !record->command.empty()) return record->process;
  }
  return 0;
}

void write(const JobRecord& record, const fs::path& path) {
  const Json json = {{"id", record.id},          {"command", record.command}, {"program", record.program},
                     {"folder", record.folder},  {"workers", record.workers}, {"start", record.start},
                     {"process", record.process}};
  write_file_atomic(path, json.sorted().dump());
}

std::vector<JobOnHost> jobs_of_host() {
  std::vector<JobOnHost> all;
  std::error_code gone;
  for (fs::directory_iterator entry(memory(), gone), end; !gone && entry != end; entry.increment(gone)) {
    const auto name = entry->path().filename().string();
    struct stat found = {};
    const bool ours = lstat(entry->path().c_str(), &found) == 0 && S_ISDIR(found.st_mode) && found.st_uid == geteuid();
    if (!ours || !begins_with(name, folder_begins) || entry->path().extension() != folder_ends) continue;
    if (auto job = job_in(entry->path())) all.push_back(std::move(*job));
  }
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.record.id < b.record.id; });
  return all;
}

}  // namespace tessera::worker
