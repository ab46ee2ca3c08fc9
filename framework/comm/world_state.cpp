#include "framework/comm/world_state.h"

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

namespace tessera::comm {
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

WorldState::WorldState() {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  peers.push_back({host.data(), ::getpid(), true, std::nullopt});
}

WorldState::WorldState(Transport how, MPI_Comm all_ranks) : comm(all_ranks), transport(how), mpi(true) {
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  check_mpi(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(comm, &size), "MPI_Comm_size");
  const auto& folder = launcher.folder();
  record = folder.empty() ? worker::OperationRecord::create(rank)
                          : worker::OperationRecord::create(worker::operations_file(folder, rank), rank);
  const Introduction mine =
      introduce(folder.empty() ? record->descriptor_path() : worker::operations_file(folder, rank));
  std::vector<Introduction> all(static_cast<std::size_t>(size));
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Iallgather(&mine, sizeof(mine), MPI_BYTE, all.data(), sizeof(mine), MPI_BYTE, comm, &request),
            "MPI_Iallgather");
  // Non-blocking with a time-out of our own: a blocking collective would hang if a rank never comes.
  Patience patience(*this);
  for (int done = 0; done == 0;) {
    check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
    if (done == 0 && !patience.pause())
      throw CommError("start of the run: not all processes have connected within the time-out");
  }
  local_size = 0;
  for (int r = 0; r < size; ++r) {
    const Introduction& other = all[static_cast<std::size_t>(r)];
    const bool here = same_host(mine, other);
    if (here && r < rank) ++local_rank;
    local_size += here ? 1 : 0;
    Peer peer{other.host.data(), other.pid, here, std::nullopt};
    if (here) peer.record = worker::OperationRecord::open(other.record.data());
    peers.push_back(std::move(peer));
  }
  // A process that yields its core may get it back only milliseconds later; with a core per process it spins longer.
  if (local_size <= ::sysconf(_SC_NPROCESSORS_ONLN)) spins = yields = 4000;
}

WorldState::~WorldState() {
  if (mpi && comm != MPI_COMM_WORLD) MPI_Comm_free(&comm);
}

// Open MPI moves messages only inside MPI calls. Probing a communicator on which nothing ever arrives is such a call
// without side effects.
void WorldState::progress() const {
  if (open_transfers == 0) return;
  int flag = 0;
  MPI_Iprobe(MPI_ANY_SOURCE, 0, MPI_COMM_SELF, &flag, MPI_STATUS_IGNORE);
}

std::string WorldState::where_is(int world_rank) const {
  const Peer& peer = peers[static_cast<std::size_t>(world_rank)];
  std::string message = text("rank ", world_rank, " (process ", peer.pid, " of host ", peer.host, ") ");
  if (!peer.record) return message + "is where this host cannot see it";
  const auto entries = peer.record->read();
  if (entries.empty()) return message + "has entered no operation yet";
  return message + "is " + tessera::worker::describe(entries.front(), worker::OperationRecord::now());
}

bool Patience::pause() {
  constexpr std::int64_t looks = 32;
  const std::int64_t spins = world_.spins;
  ++pauses_;
  if (pauses_ <= spins) {
    relax();
    if (pauses_ % looks == 0) world_.progress();
    return true;
  }
  if (pauses_ == spins + 1) begin_ = clock_.seconds();
  world_.progress();
  // Ranks that yield to each other would take most of the cores that the rank they wait for needs.
  if (pauses_ > spins + world_.yields)
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  else
    ::sched_yield();
  if (pauses_ % looks != 0) return true;
  clock_.waited(longest_look);
  waited_ = std::chrono::duration<double>(clock_.seconds() - begin_);
  return world_.time_out == std::chrono::nanoseconds::zero() || waited_ < world_.time_out;
}

}  // namespace tessera::comm
