#pragma once

#include <cstdint>
#include <string>

#include "framework/base/clock.h"
#include "framework/comm/communicator.h"
#include "framework/training/stop_signal.h"
#include "framework/training/training_options.h"

namespace tessera::training {

/// Whether a run ends before its last iteration: a signal, exit_interval or exit_duration_in_mins.
class RunStop {
 public:
  /// The arguments must outlive this. exit_duration_in_mins counts from now.
  RunStop(const TrainingOptions& options, const StopSignal& signal, const comm::Communicator& world)
      : options_(options), signal_(signal), world_(world) {}

  /// Shares what any rank has seen: a signal may reach only some ranks, and clocks differ. Collective.
  void agree();
  /// As of the last agree(): some rank received a signal.
  bool asked() const { return received_ != 0; }
  /// As of the last agree(): why the run ends after `iteration`, for people; empty: it does not.
  std::string reason(std::int64_t iteration) const;

 private:
  const TrainingOptions& options_;
  const StopSignal& signal_;
  const comm::Communicator& world_;
  Stopwatch running_;
  int received_ = 0;  ///< the signal
  bool late_ = false;
};

}  // namespace tessera::training
