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

/// Throws CommError with MPI's own words when a call failed.
void check_mpi(int code, const char* call);

/// A process of the run, as the others know it.
struct Peer {
  std::string host;
  int pid = 0;
  bool here = false;  ///< may share memory with this process
  std::optional<OperationRecord> record;
};

/// What all groups of a process share: who the others are, and how long to wait for them. For this room only.
class Run {
 public:
  /// A process by itself; no MPI.
  Run();
  /// MPI is initialised; learns who the others are. Collective.
  explicit Run(Transport transport);
  ~Run();
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  /// Let messages go on while this process waits for something else.
  void progress() const;
  /// "rank 3 of host b: in all_reduce ...", from its record when it lies on this host.
  std::string where_is(int world_rank) const;

  int rank = 0, size = 1;
  int local_rank = 0, local_size = 1;
  Transport transport = Transport::fastest;
  std::vector<Peer> peers;  ///< by world rank, this one included
  std::chrono::nanoseconds time_out = std::chrono::minutes(10);
  std::optional<OperationRecord> record;
  int spins = 200;         ///< before a wait lets others have the core; more when each process has a core
  int open_transfers = 0;  ///< messages that go on only while this process calls MPI
  LaunchLink launcher;
  bool mpi = false;  ///< initialised by this run and not yet ended
};

/// One wait: spins a moment, then lets others have the core, then sleeps for short times.
class Patience {
 public:
  explicit Patience(const Run& run) : run_(run) {}
  /// False when the time-out is over.
  bool pause();

 private:
  const Run& run_;
  std::int64_t pauses_ = 0;
  std::chrono::steady_clock::time_point begin_;
  std::chrono::nanoseconds waited_{0};
};

/// Ranks of the group that an operation waits for.
using Missing = std::vector<int>;

/// An operation of a group while it lasts: stands in the record until it ends.
class Operation {
 public:
  /// `sequence` 0: a message between two. The words live as long as the operation.
  Operation(const Communicator::State& group, std::string_view name, std::uint64_t sequence, std::size_t bytes,
            std::string_view who);
  ~Operation();
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  /// Until `ready()` is true. When the time is over, throws CommError that names those in `missing()`.
  template <class Ready, class MissingRanks>
  void wait(const Ready& ready, const MissingRanks& missing) const {
    for (Patience patience(run_); !ready();)
      if (!patience.pause()) late(missing());
  }

  /// "all_reduce 17 of group tensor (ranks 0 1), 4096 bytes, asked by 'x'".
  std::string describe() const;

  /// A number that members hardly share when they do different things.
  std::uint64_t ticket() const;
  /// Throws CommError: that member came to another operation, or to one of another size.
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
