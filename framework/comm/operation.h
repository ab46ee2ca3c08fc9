#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "framework/base/trace.h"
#include "framework/comm/exchange.h"
#include "framework/comm/world_state.h"

namespace tessera::comm {

/// Adds the duration of a scope to WorldState::waited.
class WaitingTime {
 public:
  explicit WaitingTime(WorldState& world) : world_(world) {}
  ~WaitingTime() { world_.waited += std::chrono::steady_clock::now() - begin_; }
  WaitingTime(const WaitingTime&) = delete;
  WaitingTime& operator=(const WaitingTime&) = delete;

 private:
  WorldState& world_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

/// An operation of a group, from its entry to its end: the operation record shows it as long as this object lives. If
/// an exception leaves it, the record stays "inside", because that is where the rank failed. Internal to this
/// component.
class Operation {
 public:
  /// `name` refers to texts that must outlive the operation.
  Operation(const Communicator::State& group, const OperationName& name);
  ~Operation();
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  /// Blocks until ready() is true. moved() returns a number that changes whenever the operation makes progress; the
  /// back-off and the time-out then start again, so that a long operation neither sleeps between its parts nor fails
  /// while data arrives. Throws CommError after a time-out without progress; it names the ranks in missing() that are
  /// not known to have entered the operation.
  template <class Ready, class Moved, class MissingRanks>
  void wait(const Ready& ready, const Moved& moved, const MissingRanks& missing) const {
    if (ready()) return;
    const WaitingTime waiting(world_);
    Patience patience(world_);
    for (std::uint64_t before = moved(); !ready();) {
      if (const std::uint64_t now = moved(); now != before) {
        before = now;
        patience.restart();
      }
      if (!patience.pause()) late(missing());
    }
  }

 private:
  [[noreturn]] void late(const Missing& missing) const;

  const Communicator::State& group_;
  WorldState& world_;
  OperationName name_;
  int exceptions_;
  TraceSpan span_;
};

/// Text for messages: "all_reduce 17 of group tensor (ranks 0 1), 4096 bytes, called by 'x'".
std::string describe(const Communicator::State& group, const OperationName& name);

/// Throws CommError: `member` has entered another operation than `name`, or one of another size.
[[noreturn]] void disagree(const Communicator::State& group, const OperationName& name, int member);

}  // namespace tessera::comm
