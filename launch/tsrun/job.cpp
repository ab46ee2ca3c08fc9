#include "launch/tsrun/job.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <iostream>
#include <numeric>
#include <set>
#include <sstream>

#include "framework/worker/launch_link.h"
#include "launch/tsrun/address.h"
#include "launch/tsrun/guard.h"
#include "launch/tsrun/logger.h"
#include "launch/tsrun/screen.h"

namespace tessera::tsrun {
namespace {

/// "2026-01-31 23:59:59.123", the format of the workers' logs.
std::string clock_words() {
  char words[32];
  timespec now = {};
  clock_gettime(CLOCK_REALTIME, &now);
  std::tm parts = {};
  const auto length = std::strftime(words, sizeof words, "%Y-%m-%d %H:%M:%S", localtime_r(&now.tv_sec, &parts));
  std::snprintf(words + length, sizeof words - length, ".%03d", static_cast<int>(now.tv_nsec / 1'000'000));
  return words;
}

/// Text from other hosts and workers must not control the terminal.
std::string without_controls(std::string words) {
  for (auto& c : words)
    if ((static_cast<unsigned char>(c) < 32 && c != '\n' && c != '\t') || c == 127) c = '?';
  return words;
}

std::string files_of_job(const std::string& id) {
  const char* temporary = std::getenv("TMPDIR");
  return text(temporary != nullptr && *temporary == '/' ? temporary : "/tmp", "/tsrun.", id);
}

/// Opens or creates the file and takes an exclusive lock. Returns a closed descriptor if another process holds the lock
/// for 0.5 s; a process that only checks for the lock holds it for a moment.
Descriptor locked(const std::filesystem::path& path) {
  Descriptor file(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!file) throw ConfigError(text(path.string(), " cannot be made: ", std::strerror(errno)));
  for (const double until = now() + .5; flock(file.number(), LOCK_EX | LOCK_NB) != 0; usleep(5000))
    if (now() > until) return Descriptor();
  return file;
}

/// All hosts reach one leader, so their addresses are of one family.
bool uses_ipv6(const Job& job) { return !job.is_local() && is_ipv6(job.hosts[0].address); }

/// The networks that ranks may use: those by which the hosts reach the leader. Open MPI reads only networks of IPv4;
/// for IPv6 they are given as interfaces.
std::set<std::string> networks_of(const Job& job) {
  if (job.is_local()) return {"lo"};
  std::set<std::string> all;
  for (const auto& host : job.hosts) all.insert(uses_ipv6(job) ? host.interface : host.network);
  return all;
}

/// The same for daemons: with the interface of mpirun, on whose host there may be no worker.
std::set<std::string> networks_of_daemons(const Job& job) {
  auto all = networks_of(job);
  if (uses_ipv6(job)) all.insert(interface_with(job.master_addr).name);
  return all;
}

std::string listed(const std::set<std::string>& all) {
  std::string list;
  for (const auto& network : all) list += (list.empty() ? "" : ",") + network;
  return list;
}

/// "10.77.0.1:2,10.77.0.2:2", for mpirun. Neighbouring hosts that are one machine are one entry; a local job uses
/// "localhost".
std::string host_list(const Job& job) {
  if (job.is_local()) return text("localhost:", job.workers);
  std::string list;
  for (std::size_t h = 0; h < job.hosts.size();) {
    const auto& host = job.hosts[h];
    const auto name = job.mpi_name(h);
    int workers = 0;
    for (; h < job.hosts.size() && job.hosts[h].machine == host.machine; h++) workers += job.hosts[h].workers;
    list += text(list.empty() ? "" : ",", name, ":", workers);
  }
  return list;
}

}  // namespace

void Reporter::keep_in(const std::filesystem::path& file) {
  if (std::filesystem::is_symlink(file))
    throw ConfigError(text(file.string(), ": is a symbolic link, which is not followed; delete it, or give --log_dir"));
  file_.open(file, std::ios::app);
  path_ = file;
}

void Reporter::note(const std::string& words) {
  if (!file_.is_open()) return;
  file_.clear();  // a disk that was full may have room again
  file_ << clock_words() << " " << without_controls(words) << std::endl;
}

void Reporter::say(const std::string& words, log::LogLevel level) {
  Screen::of_process().message(level, "tsrun: " + without_controls(words));
  note(words);
}

JobFolders::JobFolders(worker::JobRecord record, int first, int ranks)
    : record_(std::move(record)),
      first_(first),
      files_(worker::SharedFolder::make(files_of_job(record_.id))),
      memory_(worker::SharedFolder::make(worker::job_folder(record_.id))) {
  lock_ = locked(worker::job_lock_file(memory_.path(), first));
  if (!lock_) {
    memory_.keep(true);
    throw ConfigError(
        text("another tsrun has taken the state of the job ", record_.id, " in ", memory(), " meanwhile"));
  }
  record_.process = getpid();
  record_start(record_.start);
  hold(first, ranks);
}

void JobFolders::record_start(int start) {
  record_.start = start;
  worker::write(record_, worker::job_record_file(memory_.path(), first_));
}

bool JobFolders::keep() {
  for (const auto& [rank, memory] : held_)
    if (lseek(memory.number(), 0, SEEK_END) > 0) return false;
  memory_.keep(true);
  return true;
}

void JobFolders::hold(int first, int ranks) {
  for (int rank = first; rank < first + ranks; rank++) {
    if (held_.count(rank) != 0) continue;
    Descriptor memory(memfd_create("tsrun state", MFD_CLOEXEC));
    if (!memory) continue;  // then the state can only be in a file
    const auto link = worker::held_state_file(memory_.path(), rank);
    std::error_code exists;  // it may exist: another tsrun of the job on this machine uses the same folder
    if (!std::filesystem::exists(link, exists))
      std::filesystem::remove(link, exists);  // left by a tsrun that was killed
    std::filesystem::create_symlink(text("/proc/", getpid(), "/fd/", memory.number()), link, exists);
    held_.emplace(rank, std::move(memory));
  }
}

void JobFolders::forget(int workers) {
  record_.workers = workers;
  record_start(record_.start);
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(memory_.path(), ignored))
    if (worker::is_state_of_program(entry.path())) std::filesystem::remove_all(entry.path(), ignored);
  for (const auto& [rank, memory] : held_)
    if (ftruncate(memory.number(), 0) != 0) throw Error(text("the state of rank ", rank, " cannot be deleted"));
}

void JobFolders::clear() const {
  std::error_code ignored;
  for (const auto* folder : {&files_, &memory_})
    for (const auto& entry : std::filesystem::directory_iterator(folder->path(), ignored))
      if (entry.path().filename().string().rfind("state.", 0) != 0) std::filesystem::remove_all(entry.path(), ignored);
}

bool Job::remove_host(std::size_t host) {
  if (hosts.size() < 2) return false;
  const int all = hosts[host].workers;
  auto* before = host > 0 ? &hosts[host - 1] : nullptr;
  auto* after = host + 1 < hosts.size() ? &hosts[host + 1] : nullptr;
  const int to_before = before == nullptr  ? 0
                        : after == nullptr ? all
                                           : std::clamp((after->workers + all - before->workers + 1) / 2, 0, all);
  if (before != nullptr) before->workers += to_before;
  if (after != nullptr) after->workers += all - to_before;
  hosts.erase(hosts.begin() + static_cast<std::ptrdiff_t>(host));
  return true;
}

void Job::replace_host(std::size_t host, const std::vector<HostInfo>& by) {
  const auto at = hosts.erase(hosts.begin() + static_cast<std::ptrdiff_t>(host));
  hosts.insert(at, by.begin(), by.end());
}

std::vector<int> ranks_for_spares(int ranks, const std::vector<int>& room) {
  std::vector<int> all(room.size());
  const auto enough = std::find_if(room.begin(), room.end(), [=](int one) { return one >= ranks; });
  if (enough != room.end()) {
    all[static_cast<std::size_t>(enough - room.begin())] = ranks;
    return all;
  }
  for (std::size_t i = 0; i < room.size(); i++) {
    all[i] = std::min(ranks, room[i]);
    ranks -= all[i];
  }
  const bool any = std::any_of(room.begin(), room.end(), [](int one) { return one > 0; });
  for (std::size_t i = 0; any && ranks > 0; i = (i + 1) % room.size()) {
    if (room[i] == 0) continue;
    all[i]++;
    ranks--;
  }
  return all;
}

int most_ranks(const std::vector<int>& possible, int most) {
  int chosen = 0;
  for (const int ranks : possible)
    if (ranks <= most) chosen = std::max(chosen, ranks);
  return chosen;
}

std::vector<int> ranks_of_hosts(int ranks, const std::vector<int>& room, std::size_t first) {
  std::vector<int> all(room.size());
  const auto fill = [&](std::size_t host) { ranks -= all[host] = std::min(ranks, room[host]); };
  fill(first);
  for (std::size_t host = 0; host < room.size(); host++)
    if (host != first) fill(host);
  all.back() += ranks;
  return all;
}

int Job::first_rank(std::size_t host) const {
  int first = 0;
  for (std::size_t h = 0; h < host; h++) first += hosts[h].workers;
  return first;
}

std::vector<int> Job::ranks_on(std::size_t host) const {
  std::vector<int> ranks(static_cast<std::size_t>(hosts[host].workers));
  std::iota(ranks.begin(), ranks.end(), first_rank(host));
  return ranks;
}

std::size_t Job::host_of(int rank) const {
  std::size_t host = 0;
  while (host + 1 < hosts.size() && rank >= first_rank(host + 1)) host++;
  return host;
}

bool Job::is_local() const {
  return !hosts.empty() &&
         std::all_of(hosts.begin(), hosts.end(), [&](const HostInfo& host) { return host.machine == machine; });
}

WorkerPlace Job::place_of(int rank, int restart) const {
  WorkerPlace place;
  const auto host = host_of(rank);
  place.rank = rank;
  place.workers = workers;
  place.full_workers = std::max(workers, full_workers);
  place.local_rank = rank - first_rank(host);
  place.local_workers = hosts[host].workers;
  place.node = static_cast<int>(host);
  place.nodes = static_cast<int>(hosts.size());
  const auto same = std::find_if(hosts.begin(), hosts.end(),
                                 [&](const HostInfo& other) { return other.machine == hosts[host].machine; });
  place.machine = static_cast<int>(same - hosts.begin());
  place.master_addr = master_addr;
  place.master_port = master_port;
  place.cluster_time_out = options.cluster_time_out;
  place.restart = restart;
  place.max_restarts = options.max_restarts.value_or(0);
  place.run_id = options.run_id;
  place.role = options.role;
  place.rank_table_file = options.rank_table_file;
  place.torchrun = options.dialect == Dialect::torchrun;
  place.job = id;
  return place;
}

std::string Job::mpi_name(std::size_t host) const {
  const bool shared = std::any_of(hosts.begin(), hosts.end(), [&](const HostInfo& other) {
    return other.address == hosts[host].address && other.machine != hosts[host].machine;
  });
  return shared || is_ipv6(hosts[host].address) ? hosts[host].host : hosts[host].address;
}

std::string Job::words_of(std::size_t host) const { return text(hosts[host].host, " (", hosts[host].address, ")"); }

std::vector<int> tailed(const std::string& list, int workers) {
  std::vector<int> all;
  std::istringstream words(list);
  for (std::string word; std::getline(words, word, ',');)
    for (int local = 0; local < workers; local++)
      if (word == "-1" || word == std::to_string(local)) all.push_back(local);
  return all;
}

void go_on_alone(const std::string& log_dir) {
  std::cout.flush();
  const pid_t child = fork();
  if (child < 0) throw Error("cannot start a process");
  if (child > 0) {
    logger.info(text("tsrun: continuing in the background as process ", child, "; logs are in ", log_dir, "; `kill ",
                     child, "` stops all workers"));
    _exit(0);
  }
  setsid();
  const Descriptor nothing(open("/dev/null", O_RDWR | O_CLOEXEC));
  for (int standard = 0; standard < 3; standard++) dup2(nothing.number(), standard);
}

std::vector<std::string> mpirun_words(const Job& job, const JobFolders& folders) {
  std::vector<std::string> words = {find_program("mpirun", this_environment())};
  const auto add = [&](std::initializer_list<std::string> more) { words.insert(words.end(), more); };
  const auto set = [&](const std::string& name, const std::string& value) { add({"--mca", name, value}); };
  const auto given = this_environment();
  const auto set_unless_given = [&](const std::string& name, const std::string& value) {
    if (given.count("OMPI_MCA_" + name) == 0) set(name, value);
  };
  const bool crowded =
      std::any_of(job.hosts.begin(), job.hosts.end(), [](const HostInfo& host) { return host.workers > host.cores; });
  if (geteuid() == 0) add({"--allow-run-as-root"});
  add({"--enable-recovery"});  // tsrun reports a worker that dies and stops the others
  add({"--leave-session-attached", "--bind-to", "none", "--map-by", "slot:OVERSUBSCRIBE"});
  set("odls_base_sigkill_timeout", "1");  // seconds that daemons without mpirun wait for workers
  set("orte_base_help_aggregate", "0");
  set("mpi_yield_when_idle", crowded ? "1" : "0");
  set("pml", "ob1");
  set("btl", job.is_local() ? "self,vader" : "self,vader,tcp");  // tcp listens at all addresses
  set(uses_ipv6(job) ? "oob_tcp_disable_ipv4_family" : "oob_tcp_disable_ipv6_family", "true");
  if (uses_ipv6(job)) set("btl_tcp_disable_family", "4");
  if (!job.is_local()) {
    // Above the ports that Linux uses for outgoing connections, like those of mpirun (launch/loopback).
    for (const char* family : {"v4", "v6"}) {
      set_unless_given(text("btl_tcp_port_min_", family), "62000");
      set_unless_given(text("btl_tcp_port_range_", family), "3000");
    }
  }
  set("oob_tcp_if_include", listed(networks_of_daemons(job)));
  // Ranks need every included interface on their host: with different ones they use all but the loopback interface.
  const auto networks = networks_of(job);
  const bool different = uses_ipv6(job) && networks.size() > 1;
  set(different ? "btl_tcp_if_exclude" : "btl_tcp_if_include", different ? "lo" : listed(networks));
  for (const char* segments : {"btl_vader_backing_directory", "osc_sm_backing_directory", "osc_rdma_backing_directory"})
    set(segments, folders.memory());
  set("orte_tmpdir_base", folders.files());
  set("ras", "^slurm,tm,gridengine,lsf,alps");  // only the hosts of --host
  set("plm", "rsh");
  set("plm_rsh_agent", own_path() + " --as-agent");
  set("plm_rsh_no_tree_spawn", "1");
  // Without TSRUN_KEY, which MPI would send over the network: it is in the environment of mpirun and of each daemon.
  for (const char* name : {"TSRUN_LEADER", "TSRUN_ATTEMPT", "TSRUN_FOLDERS"}) add({"-x", name});
  add({"--host", host_list(job), "-np", std::to_string(job.workers), own_path(), "--as-worker"});
  return words;
}

std::string loopback_library() {
  const auto here = std::filesystem::path(own_path()).parent_path();
  for (const auto& path : {here / "tsrun_loopback.so", here / TSRUN_LOOPBACK})
    if (std::filesystem::exists(path)) return std::filesystem::canonical(path);
  return "";
}

Environment mpirun_environment(const Job& job, const JobFolders& folders, int restart) {
  auto all = free_of_launchers(this_environment());
  all["TSRUN_LEADER"] = words_of(job.leader);
  all["TSRUN_KEY"] = job.key;
  all["TSRUN_ATTEMPT"] = std::to_string(restart);
  all["TSRUN_FOLDERS"] = folders.files() + ":" + folders.memory();
  if (!job.is_local()) all["TSRUN_LISTEN"] = job.master_addr;
  if (const auto library = loopback_library(); !library.empty()) {
    const auto others = all.find("LD_PRELOAD");
    all[guard_preload] = library + (others == all.end() ? "" : ":" + others->second);
  }
  return all;
}

}  // namespace tessera::tsrun
