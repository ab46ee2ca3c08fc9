#include "framework/worker/launch_link.h"

#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>

#include "framework/base/error.h"

namespace tessera::worker {
namespace {

constexpr std::size_t longest_text =
    8000;  // bytes: below the socket's packet limit, because a packet is sent whole or not at all

/// Returns the socket of "descriptor:inode", or -1 if the descriptor is another file: a program between tsrun and this
/// one may have closed it and opened another file under the same number.
int promised_socket(const char* promise) {
  if (promise == nullptr) return -1;
  char* rest = nullptr;
  const long descriptor = std::strtol(promise, &rest, 10);
  if (rest == promise || *rest != ':' || descriptor < 0) return -1;
  const auto inode = std::strtoull(rest + 1, nullptr, 10);
  struct stat found = {};
  if (fstat(static_cast<int>(descriptor), &found) != 0) return -1;
  return S_ISSOCK(found.st_mode) && found.st_ino == inode ? static_cast<int>(descriptor) : -1;
}

}  // namespace

LaunchLink::LaunchLink() : descriptor_(promised_socket(std::getenv("TESSERA_LAUNCH_LINK"))) {
  const char* folder = std::getenv("TESSERA_LAUNCH_FOLDER");
  if (present() && folder != nullptr) folder_ = folder;
  const char* order = std::getenv("TESSERA_LAUNCH_ORDER");
  if (present() && order != nullptr) order_ = order;
}

void LaunchLink::holds(std::int64_t iteration) const { say(LinkWord::holds, std::to_string(iteration)); }

void LaunchLink::expect(double seconds, const std::string& phase) const {
  say(LinkWord::deadline, text(seconds, " ", phase));
}

void LaunchLink::can_continue_with(const std::vector<std::int64_t>& ranks) const {
  constexpr std::size_t most = 1000;
  std::string words;
  for (std::size_t i = ranks.size() > most ? ranks.size() - most : 0; i < ranks.size(); ++i)
    words += (words.empty() ? "" : ",") + std::to_string(ranks[i]);
  say(LinkWord::ranks, words);
}

std::filesystem::path state_file(const std::filesystem::path& folder, int rank) {
  return folder / ("state." + std::to_string(rank));
}
std::filesystem::path held_state_file(const std::filesystem::path& folder, int rank) {
  return folder / ("state.held." + std::to_string(rank));
}

int host_of_job() {
  const char* number = std::getenv("TESSERA_LAUNCH_HOST");
  return number == nullptr ? 0 : static_cast<int>(std::strtol(number, nullptr, 10));
}

std::int64_t full_world(std::int64_t ranks) {
  const char* number = std::getenv("TESSERA_LAUNCH_FULL_WORLD");
  return number == nullptr ? ranks : std::max<std::int64_t>(ranks, std::strtoll(number, nullptr, 10));
}

std::int64_t start_of_job() {
  for (const auto& [job, start] : job_starts())
    if (job.rfind("tsrun ", 0) == 0) return start;
  return 0;
}

std::string id_of_job() {
  for (const auto& [job, start] : job_starts())
    if (job.rfind("tsrun ", 0) == 0) return job.substr(std::string("tsrun ").size());
  return "";
}

std::map<std::string, std::int64_t> job_starts() {
  const auto variable = [](const char* name) -> std::string {
    const char* words = std::getenv(name);
    return words == nullptr ? "" : words;
  };
  std::map<std::string, std::int64_t> all;
  const auto launched = variable("TESSERA_LAUNCH_JOB"), queued = variable("SLURM_JOB_ID");
  if (const auto colon = launched.find(':'); colon != std::string::npos && colon > 0)
    all["tsrun " + launched.substr(0, colon)] = std::strtoll(launched.c_str() + colon + 1, nullptr, 10);
  if (!queued.empty()) all["slurm " + queued] = std::strtoll(variable("SLURM_RESTART_COUNT").c_str(), nullptr, 10);
  return all;
}

void LaunchLink::say(LinkWord word, const std::string& about) const {
  if (!present()) return;
  const std::string packet = static_cast<char>(word) + about.substr(0, longest_text);
  // A worker must not stop because the launcher does not read or is gone: never block, no SIGPIPE, ignore the result.
  static_cast<void>(send(descriptor_, packet.data(), packet.size(), MSG_NOSIGNAL | MSG_DONTWAIT));
}

}  // namespace tessera::worker
