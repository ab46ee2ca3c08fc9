#pragma once

#include <mpi.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "framework/base/watch_clock.h"
#include "framework/comm/communicator.h"
#include "framework/comm/world.h"
#include "framework/worker/launch_link.h"
#include "framework/worker/operation_record.h"

namespace tessera::comm {

/// Throws CommError with MPI's error text unless `code` is MPI_SUCCESS. `call`: name of the MPI function.
void check_mpi(int code, const char* call);

/// What this process knows about a rank of the run.
struct Peer {
  std::string host;
  int pid = 0;
  bool here = false;                              ///< on this host, and can share memory with this process
  std::optional<worker::OperationRecord> record;  ///< its operation record; absent if it is on another host
};

/// What all groups of a process share: the other ranks, and how long to wait for them. Internal to this component.
class WorldState {
 public:
  /// A run of one process, without MPI.
  WorldState();
  /// Collective over `comm`, which this object frees unless it is MPI_COMM_WORLD; MPI must be initialized. Exchanges
  /// host, process id and operation record with all ranks.
  WorldState(Transport transport, MPI_Comm comm);
  ~WorldState();
  WorldState(const WorldState&) = delete;
  WorldState& operator=(const WorldState&) = delete;

  /// Lets MPI make progress with messages while this process waits for something else.
  void progress() const;
  /// Describes a rank: "rank 3 (process 17 of host b) is in all_reduce ...", from its record if it is on this host.
  std::string where_is(int world_rank) const;

  MPI_Comm comm = MPI_COMM_NULL;  ///< of all ranks; null for a run of one process
  int rank = 0, size = 1;
  int local_rank = 0, local_size = 1;
  Transport transport = Transport::fastest;
  std::vector<Peer> peers;                                       ///< by world rank, including this one
  std::chrono::nanoseconds time_out = std::chrono::minutes(10);  ///< of every operation; zero: none
  std::optional<worker::OperationRecord> record;                 ///< operation record of this process
  std::chrono::nanoseconds waited{0};                            ///< time waited for other ranks, in all operations
  int spins = 200;                ///< polls before a wait yields the core; more if each process has its own core
  int yields = 16;                ///< of a wait before it sleeps; more, about 2 ms, if each process has its own core
  std::size_t message_bytes = 0;  ///< this rank's part of the shared memory of its groups
  int open_transfers = 0;         ///< messages in flight; they make progress only while this process calls MPI
  worker::LaunchLink launcher;
  bool mpi = false;  ///< MPI is initialized and not finalized
};

/// The back-off of one wait: first polls, then yields the core, then sleeps for 50 us at a time.
class Patience {
 public:
  /// Longest time between two looks at the clock that counts, in seconds: it is usually milliseconds.
  static constexpr double longest_look = .2;
  explicit Patience(const WorldState& world, WatchClock::Source clock = WatchClock::steady_seconds)
      : world_(world), clock_(clock) {}
  /// Pauses once; returns false when the time-out has passed.
  bool pause();
  /// Restarts the back-off and the time-out, because the operation has made progress.
  void restart() {
    pauses_ = 0;
    waited_ = std::chrono::duration<double>::zero();
  }

 private:
  const WorldState& world_;
  std::int64_t pauses_ = 0;
  WatchClock clock_;  ///< a time in which this process was stopped is not time that others took
  double begin_ = 0;  ///< time of `clock_` when the back-off began
  std::chrono::duration<double> waited_{0};
};

}  // namespace tessera::comm
