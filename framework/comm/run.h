#pragma once

#include <mpi.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "framework/comm/communicator.h"
#include "framework/comm/launch_link.h"
#include "framework/comm/operation_record.h"
#include "framework/comm/world.h"

namespace tessera {

/// Throws CommError with MPI's error text unless `code` is MPI_SUCCESS. `call` is the name of the MPI function.
void check_mpi(int code, const char* call);

/// What this process knows about a rank of the run.
struct Peer {
  std::string host;
  int pid = 0;
  bool here = false;                      ///< on this host, and may share memory with this process
  std::optional<OperationRecord> record;  ///< absent if it is on another host
};

/// What all groups of a process share: the other ranks, and how long to wait for them. Internal to this component.
class Run {
 public:
  /// A run of one process, without MPI.
  Run();
  /// Collective; MPI must be initialized. Exchanges host, process id and operation record with all ranks.
  explicit Run(Transport transport);
  ~Run();
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  /// Lets MPI make progress with messages while this process waits for something else.
  void progress() const;
  /// "rank 3 (process 17 of host b) is in all_reduce ...", from its record if it is on this host.
  std::string where_is(int world_rank) const;

  int rank = 0, size = 1;
  int local_rank = 0, local_size = 1;
  Transport transport = Transport::fastest;
  std::vector<Peer> peers;                                       ///< by world rank, this one included
  std::chrono::nanoseconds time_out = std::chrono::minutes(10);  ///< of every operation; zero: none
  std::optional<OperationRecord> record;                         ///< of this process
  int spins = 200;         ///< polls of a wait before it yields the core; more if each process has a core of its own
  int open_transfers = 0;  ///< messages in flight; they proceed only while this process calls MPI
  LaunchLink launcher;
  bool mpi = false;  ///< MPI was initialized by this run and is not finalized
};

/// The back-off of one wait: polls, then yields the core, then sleeps 50 us at a time.
class Patience {
 public:
  explicit Patience(const Run& run) : run_(run) {}
  /// One step; returns false when the time-out has passed.
  bool pause();

 private:
  const Run& run_;
  std::int64_t pauses_ = 0;
  std::chrono::steady_clock::time_point begin_;
  std::chrono::nanoseconds waited_{0};
};

/// Ranks in the group that an operation is waiting for.
using Missing = std::vector<int>;

/// An operation of a group, from its entry to its end: it is in the operation record as long as this object lives. If
/// an exception leaves it, the record stays "inside": that is where the rank failed.
class Operation {
 public:
  /// `sequence` 0: a point-to-point message. `name` and `who` must live as long as the operation.
  Operation(const Communicator::State& group, std::string_view name, std::uint64_t sequence, std::size_t bytes,
            std::string_view who);
  ~Operation();
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  /// Blocks until ready() is true. After the time-out throws CommError that names the ranks in missing().
  template <class Ready, class MissingRanks>
  void wait(const Ready& ready, const MissingRanks& missing) const {
    for (Patience patience(run_); !ready();)
      if (!patience.pause()) late(missing());
  }

  /// "all_reduce 17 of group tensor (ranks 0 1), 4096 bytes, asked by 'x'".
  std::string describe() const;

  /// A hash of operation and size, to detect that members have entered different operations.
  std::uint64_t ticket() const;
  /// Throws CommError: `member` entered another operation, or one of another size.
  [[noreturn]] void disagree(int member) const;
  const Run& run() const { return run_; }

 private:
  [[noreturn]] void late(const Missing& missing) const;

  const Communicator::State& group_;
  const Run& run_;
  std::string_view name_, who_;
  std::uint64_t sequence_;
  std::size_t bytes_;
  int exceptions_;
};

}  // namespace tessera
