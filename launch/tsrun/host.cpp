#include "launch/tsrun/host.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "framework/base/cpu_limit.h"
#include "framework/base/crc32c.h"
#include "framework/base/files.h"
#include "framework/worker/job_record.h"
#include "launch/tsrun/cores.h"
#include "launch/tsrun/descriptors.h"
#include "launch/tsrun/logger.h"
#include "launch/tsrun/run_folder.h"
#include "launch/tsrun/worker_environment.h"

namespace tessera::tsrun {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t largest_compared = 256 << 20;

socklen_t size_of(const sockaddr& address) {
  return address.sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
}

/// The bytes of an address in the order of the network: 4 or 16.
std::string_view bytes_of(const sockaddr& address) {
  if (address.sa_family == AF_INET6)
    return {reinterpret_cast<const char*>(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr), sizeof(in6_addr)};
  return {reinterpret_cast<const char*>(&reinterpret_cast<const sockaddr_in&>(address).sin_addr), sizeof(in_addr)};
}

/// "10.77.0.0/24", "fd77::/64".
std::string network_of(const sockaddr& address, const sockaddr& mask) {
  std::string network(bytes_of(address));
  int bits = 0;
  for (std::size_t i = 0; i < network.size(); i++) {
    network[i] = static_cast<char>(network[i] & bytes_of(mask)[i]);
    bits += __builtin_popcount(static_cast<unsigned char>(bytes_of(mask)[i]));
  }
  char words[INET6_ADDRSTRLEN] = "";
  inet_ntop(address.sa_family, network.data(), words, sizeof words);
  return text(words, "/", bits);
}

std::vector<Interface> interfaces() {
  std::vector<Interface> all;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return all;
  for (const auto* one = list; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || one->ifa_netmask == nullptr) continue;
    if (one->ifa_addr->sa_family != AF_INET && one->ifa_addr->sa_family != AF_INET6) continue;
    char address[NI_MAXHOST] = "";
    getnameinfo(one->ifa_addr, size_of(*one->ifa_addr), address, sizeof address, nullptr, 0, NI_NUMERICHOST);
    all.push_back({one->ifa_name, address, network_of(*one->ifa_addr, *one->ifa_netmask)});
  }
  freeifaddrs(list);
  return all;
}

/// Equal for two shells on one machine; different for two containers, network namespaces or Slurm nodes.
std::string machine_identity() {
  std::string all;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> all;
  for (const char* space : {"net", "mnt", "pid", "uts", "ipc"}) {
    struct stat found = {};
    if (stat(text("/proc/self/ns/", space).c_str(), &found) == 0) all += text(" ", found.st_ino);
  }
  return all;
}

std::string fingerprint(const std::string& path) {
  const auto size = fs::file_size(path);
  if (size > largest_compared) return text(size, " bytes");
  std::ifstream in(path, std::ios::binary);
  std::array<char, 65536> piece{};  // the whole of a program would be thousands of fresh pages
  std::uint32_t sum = 0;
  while (in.read(piece.data(), piece.size()), in.gcount() > 0)
    sum = crc32c(std::string_view(piece.data(), static_cast<std::size_t>(in.gcount())), sum);
  if (!in.is_open() || in.bad()) throw IoError(text(path, ": cannot be read"));
  return text(size, " bytes, sum ", crc_text(sum));
}

/// Returns what must be equal on all hosts: options, the command line, and a checksum of the program and of every
/// argument that is a file.
std::vector<std::string> what_must_agree(const LaunchOptions& options, const std::vector<std::string>& program) {
  const auto sizes = sizes_of(options);
  std::vector<std::string> all = {
      text("number of workers: ", sizes.total),
      text("lease, host_time_out, host_lease, leader_time_out and stop_time_out: ", options.lease, ", ",
           options.host_time_out, ", ", options.host_lease, ", ", options.leader_time_out, " and ",
           options.stop_time_out, " s"),
      text("max_restarts: ", options.max_restarts ? std::to_string(*options.max_restarts) : "not given"),
      text("restart_window: ", options.restart_window ? text(*options.restart_window, " s") : "not given")};
  std::string line = "program line:";
  for (const auto& word : options.program) line += " " + word;
  all.push_back(line);
  for (std::size_t i = 0; i < program.size(); i++) {
    std::error_code no;
    if (fs::is_regular_file(program[i], no))
      all.push_back(
          text(i == 0 ? "program " : "file ", fs::path(program[i]).filename().string(), ": ", fingerprint(program[i])));
  }
  return all;
}

/// Looks in this host's memory for the state of a job with the same command whose processes were all killed, and stores
/// it in `info`. Throws ConfigError if that job still runs.
void find_left_job(const LaunchOptions& options, HostInfo& info) {
  const int total = sizes_of(options).total;
  for (const auto& job : worker::jobs_of_host()) {
    const auto& record = job.record;
    if (record.program != options.program || record.folder != info.folder || !job.keeps_state) continue;
    if (total != 0 && record.workers != total) {
      logger.warning(text("tsrun: the state of a job with this command and ", record.workers, " workers is left in ",
                          job.folder.string(), ", ", job.bytes, " bytes: `tessera state clean ", record.id,
                          "` deletes it"));
      continue;
    }
    const bool led = kill(record.process, 0) == 0;
    if (job.lives())
      throw ConfigError(
          text("this command is already running as ", led ? text("process ", record.process) : text("job ", record.id),
               led ? "; stop it first, or wait until it has ended"
                   : ", whose tsrun was killed: its workers save their state and end soon; try again then"));
    if (!info.left_job.empty() && info.left_start >= record.start) continue;
    info.left_job = record.id;
    info.left_start = record.start;
    info.left_workers = record.workers;
  }
}

/// Returns the command line with the full path of the program; a Python file is run by python3.
std::vector<std::string> full_program(const LaunchOptions& options, const Environment& environment) {
  auto words = options.program;
  if (fs::path(words[0]).extension() == ".py") {
    if (!fs::exists(words[0])) throw ConfigError(words[0] + ": there is no such file");
    words.insert(words.begin(), "python3");
  }
  words[0] = find_program(words[0], environment);
  return words;
}

void make_log_folder(const std::string& folder) {
  try {
    make_folder(folder);
  } catch (const IoError& error) {
    throw ConfigError(text(error.what(), "; logs go there: give a run folder that can be written, or --log_dir"));
  }
}

}  // namespace

std::string host_name() {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  return name;
}

Interface interface_with(const std::string& address) {
  std::string known;
  for (const auto& one : interfaces()) {
    if (one.address == address) return one;
    known += text(known.empty() ? "" : ", ", one.name, " ", one.address);
  }
  if (is_loopback(address)) return {"lo", address, "127.0.0.0/8"};
  throw ConfigError(text(address, " is not an address of this host (", known, ")"));
}

bool is_own_address(const std::string& address) {
  if (is_loopback(address)) return true;
  for (const auto& one : interfaces())
    if (one.address == address) return true;
  return false;
}

HostInfo describe_this_host(const LaunchOptions& options, const std::string& address) {
  HostInfo info;
  info.host = host_name();
  try {
    const auto sizes = sizes_of(options);
    info.node_rank = sizes.one_host ? 0 : options.node_rank;
    info.spare = options.spare;
    info.workers = sizes.local;
    const auto way = interface_with(address);
    info.address = address;
    info.interface = way.name;
    info.network = way.network;
    info.machine = machine_identity();
    info.tsrun = own_path();
    info.folder = fs::current_path();
    info.environment = without_other_jobs(this_environment());
    info.program = full_program(options, info.environment);
    info.given = what_must_agree(options, info.program);
    info.bind_core = options.bind_core;
    ensure_descriptors(info.workers);
    const auto cores = usable_cores();
    info.cores = usable_core_count(static_cast<int>(cores.size()));
    for (int local = 0; local < info.workers; local++)
      static_cast<void>(bound_cores(options.bind_core, local, info.workers, cores));
    info.log_dir = fs::absolute(options.log_dir.empty() ? default_log_folder(info.program) : fs::path(options.log_dir));
    make_log_folder(info.log_dir);
    info.worker_log_name = options.worker_log_name;
    find_left_job(options, info);
  } catch (const std::exception& error) {
    info.problem = error.what();
  }
  return info;
}

pid_t process_here(const HostInfo& host) { return host.machine == machine_identity() ? host.process : 0; }

pid_t process_of_leader(const std::string& memory) {
  const auto process = worker::leading_process(memory);
  return process > 0 && runs_tsrun(process) ? process : 0;
}

std::string difference(const HostInfo& first, const HostInfo& other) {
  for (std::size_t i = 0; i < std::max(first.given.size(), other.given.size()); i++) {
    const auto here = i < first.given.size() ? first.given[i] : "nothing more";
    const auto there = i < other.given.size() ? other.given[i] : "nothing more";
    if (here == there) continue;
    return text("not the same on all hosts: ", first.host, " (", first.address, ") has ", here, "; ", other.host, " (",
                other.address, ") has ", there);
  }
  return "";
}

std::string log_of(const HostInfo& host, int rank) {
  auto name = host.worker_log_name.empty() ? "worker" : host.worker_log_name;
  for (const auto& [mark, value] :
       {std::pair<std::string, std::string>{"{ip}", host.address}, {"{hostname}", host.host}})
    for (auto at = name.find(mark); at != std::string::npos; at = name.find(mark, at + value.size()))
      name.replace(at, mark.size(), value);
  return fs::path(host.log_dir) / text(name, "_", rank, ".log");
}

}  // namespace tessera::tsrun
