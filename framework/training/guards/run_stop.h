#pragma once

#include <cstdint>
#include <string>

#include "framework/base/clock.h"
#include "framework/comm/communicator.h"
#include "framework/training/guards/stop_signal.h"
#include "framework/training/options/training_options.h"

namespace tessera::training {

/// Decides whether a run ends before its last iteration: because of a signal, exit_interval or exit_duration_in_mins.
class RunStop {
 public:
  /// The arguments must outlive this object. exit_duration_in_mins counts from the construction.
  RunStop(const TrainingOptions& options, const StopSignal& signal, const comm::Communicator& world)
      : options_(options), signal_(signal), world_(world) {}

  /// Exchanges what the ranks have seen, because a signal may reach only some ranks and clocks differ. Collective.
  void agree();
  /// Whether any rank had received a signal at the last agree().
  bool asked() const { return received_ != 0; }
  /// Why the run ends after `iteration`, as text for the user; empty: it continues. According to the last agree().
  std::string reason(std::int64_t iteration) const;

 private:
  const TrainingOptions& options_;
  const StopSignal& signal_;
  const comm::Communicator& world_;
  Stopwatch running_;
  int received_ = 0;  ///< number of the signal; 0: none
  bool late_ = false;
};

}  // namespace tessera::training
