#include "framework/comm/run.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <exception>
#include <fstream>
#include <iomanip>
#include <thread>

#include "framework/base/relax.h"
#include "framework/comm/group.h"

namespace tessera {
namespace {

std::string link_target(const char* path) {
  std::array<char, 256> target{};
  const auto length = ::readlink(path, target.data(), target.size() - 1);
  return length > 0 ? std::string(target.data(), static_cast<std::size_t>(length)) : std::string();
}

/// What each rank tells all others when the run begins.
struct Introduction {
  std::array<char, 256> host{};
  std::array<char, 256> machine{};  // equal if the processes see each other in /proc
  std::array<char, 256> record{};
  std::int32_t pid = 0;
};

void set(std::array<char, 256>& field, const std::string& words) {
  std::memcpy(field.data(), words.data(), std::min(words.size(), field.size() - 1));
}

// Same boot, same process namespace, same user: only then does /proc/PID/fd of the other process open (containers on
// one host may share the boot id but not the namespace).
Introduction introduce(const std::filesystem::path& record) {
  Introduction mine;
  ::gethostname(mine.host.data(), mine.host.size() - 1);
  std::ifstream boot_id("/proc/sys/kernel/random/boot_id");
  std::string machine;
  std::getline(boot_id, machine);
  set(mine.machine, text(machine, " ", link_target("/proc/self/ns/pid"), " ", ::getuid()));
  set(mine.record, record.string());
  mine.pid = ::getpid();
  return mine;
}

bool same_host(const Introduction& a, const Introduction& b) { return a.host == b.host && a.machine == b.machine; }

}  // namespace

void check_mpi(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> words{};
  int length = 0;
  MPI_Error_string(code, words.data(), &length);
  throw CommError(text(call, ": ", std::string(words.data(), static_cast<std::size_t>(length))));
}

Run::Run() {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  peers.push_back({host.data(), ::getpid(), true, std::nullopt});
}

Run::Run(Transport how) : transport(how), mpi(true) {
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &rank), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &size), "MPI_Comm_size");
  const auto& folder = launcher.folder();
  record =
      folder.empty() ? OperationRecord::create(rank) : OperationRecord::create(operations_file(folder, rank), rank);
  const Introduction mine = introduce(folder.empty() ? record->descriptor_path() : operations_file(folder, rank));
  std::vector<Introduction> all(static_cast<std::size_t>(size));
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Iallgather(&mine, sizeof(mine), MPI_BYTE, all.data(), sizeof(mine), MPI_BYTE, MPI_COMM_WORLD, &request),
            "MPI_Iallgather");
  // Non-blocking with a time-out of our own: a blocking collective would hang if a rank never comes.
  Patience patience(*this);
  for (int done = 0; done == 0;) {
    check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
    if (done == 0 && !patience.pause())
      throw CommError("start of the run: not all processes have said who they are within the time-out");
  }
  local_size = 0;
  for (int r = 0; r < size; ++r) {
    const Introduction& other = all[static_cast<std::size_t>(r)];
    const bool here = same_host(mine, other);
    if (here && r < rank) ++local_rank;
    local_size += here ? 1 : 0;
    Peer peer{other.host.data(), other.pid, here, std::nullopt};
    if (here) peer.record = OperationRecord::open(other.record.data());
    peers.push_back(std::move(peer));
  }
  // A process that yields its core may get it back only milliseconds later; with a core per process it spins longer.
  if (local_size <= ::sysconf(_SC_NPROCESSORS_ONLN)) spins = 4000;
}

Run::~Run() = default;

// Open MPI moves messages only inside MPI calls. Probing a communicator on which nothing ever arrives is such a call
// without side effects.
void Run::progress() const {
  if (open_transfers == 0) return;
  int flag = 0;
  MPI_Iprobe(MPI_ANY_SOURCE, 0, MPI_COMM_SELF, &flag, MPI_STATUS_IGNORE);
}

std::string Run::where_is(int world_rank) const {
  const Peer& peer = peers[static_cast<std::size_t>(world_rank)];
  std::string story = text("rank ", world_rank, " (process ", peer.pid, " of host ", peer.host, ") ");
  if (!peer.record) return story + "is where this host cannot see it";
  const auto places = peer.record->read();
  if (places.empty()) return story + "has entered no operation yet";
  return story + "is " + tessera::describe(places.front(), OperationRecord::now());
}

bool Patience::pause() {
  constexpr std::int64_t looks = 32;
  const std::int64_t spins = run_.spins;
  ++pauses_;
  if (pauses_ <= spins) {
    relax();
    if (pauses_ % looks == 0) run_.progress();
    return true;
  }
  if (pauses_ == spins + 1) begin_ = std::chrono::steady_clock::now();
  run_.progress();
  if (waited_ > std::chrono::milliseconds(20))
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  else
    ::sched_yield();
  if (pauses_ % looks != 0) return true;
  waited_ = std::chrono::steady_clock::now() - begin_;
  return run_.time_out == std::chrono::nanoseconds::zero() || waited_ < run_.time_out;
}

Operation::Operation(const Communicator::State& group, std::string_view name, std::uint64_t sequence, std::size_t bytes,
                     std::string_view who)
    : group_(group),
      run_(*group.run),
      name_(name),
      who_(who),
      sequence_(sequence),
      bytes_(bytes),
      exceptions_(std::uncaught_exceptions()) {
  group.run->record->enter(group.name, name, sequence, bytes, who);
}

// During an exception the record stays inside the operation: that is what the other ranks report about this one.
Operation::~Operation() {
  if (std::uncaught_exceptions() == exceptions_) group_.run->record->leave();
}

std::string Operation::describe() const {
  std::string story(name_);
  if (sequence_ != 0) story += text(" ", sequence_);
  story += text(" of group ", group_.name, " (ranks");
  constexpr std::size_t shown = 16;
  for (std::size_t r = 0; r < std::min(shown, group_.world_ranks.size()); ++r)
    story += text(" ", group_.world_ranks[r]);
  if (group_.world_ranks.size() > shown) story += text(" ... ", group_.world_ranks.back());
  return story + text("), ", bytes_, " bytes, asked by '", who_, "'");
}

// FNV-1a.
std::uint64_t Operation::ticket() const {
  std::uint64_t hash = 0xcbf29ce484222325;
  const auto mix = [&hash](std::uint64_t value) { hash = (hash ^ value) * 0x100000001b3; };
  for (const char letter : name_) mix(static_cast<unsigned char>(letter));
  mix(bytes_);
  return hash;
}

void Operation::disagree(int member) const {
  throw CommError(text(describe(), ": another member came with something else:\n  ",
                       run_.where_is(group_.world_ranks[static_cast<std::size_t>(member)])));
}

void Operation::late(const Missing& missing) const {
  const double seconds = std::chrono::duration<double>(run_.time_out).count();
  std::string story =
      text(describe(), ": rank ", run_.rank, " of host ", run_.peers[static_cast<std::size_t>(run_.rank)].host,
           " has waited ", std::fixed, std::setprecision(1), seconds, " s for:");
  for (const int member : missing)
    story += "\n  " + run_.where_is(group_.world_ranks[static_cast<std::size_t>(member)]);
  throw CommError(story);
}

}  // namespace tessera
