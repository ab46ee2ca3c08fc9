#pragma once

#include "framework/kernels/threads.h"
#include "framework/resilience/faults.h"
#include "framework/training/guards/run_stop.h"
#include "framework/training/guards/state_checks.h"
#include "framework/training/guards/step_time_out.h"
#include "framework/training/loop/participant.h"
#include "framework/training/reports/profiler.h"
#include "framework/training/saving/resume.h"
#include "framework/worker/launch_link.h"

namespace tessera::training {

/// What the participants of a run share: its parts, its state and how far it is. The constructor restores the state.
struct Run {
  /// Collective. Throws as RunFolder, StateKeeper and restore(). `signal` must outlive this object.
  Run(TrainingSetup given, const StopSignal& signal);

  /// Path of the checkpoint that was saved last, or from which the run began; "none".
  std::string last_checkpoint() const { return saved_last.empty() ? "none" : saved_last.string(); }
  bool is_complete() const { return progress.iteration >= options.training_iters; }
  std::int64_t samples_per_step() const { return setup.data.batch_plan.full().samples; }  ///< after batch size ramp-up
  /// Of the next step.
  schedule::StepSize next_step() const { return setup.data.batch_plan.at(progress.consumed_samples); }

  /// For processes that continue from the memory of these.
  RunPosition position() const;
  /// The run continues from a checkpoint.
  void go_back(Restored to);
  /// The run begins with the present state. Collective.
  void begin_memory();
  /// From now on a later process continues here. Call it at a point that all ranks reach.
  void commit();

  // How long this rank waits for others in what follows. As soon as the time of a step is known, the launcher limits
  // the whole phase to the same time, because a single rank waits in no operation.
  void wait_for_step() const;
  void wait_for_evaluation() const;
  void wait_longest() const;  ///< for a phase whose length does not follow from the time of a step

  TrainingSetup setup;
  const TrainingOptions& options;
  const comm::Communicator& world;
  Participants participants;
  RunFolder folder;
  Profiler profiler;  ///< before all members that have threads
  kernels::Threads threads;
  StateKeeper keeper;
  ModelState state;
  Restored restored;                             ///< from where the run began, or to where it went back last
  checkpoint::Progress progress;                 ///< after the last complete step
  PositionNumbers numbers;                       ///< what else later processes continue from
  std::optional<checkpoint::FrozenBase> frozen;  ///< RunPosition::frozen
  TrainingStep work;
  worker::LaunchLink launcher;
  resilience::Faults faults;
  StepTimeOut step_time_out;
  RunStop stop;
  StateChecks checks;
  std::filesystem::path saved_last;  ///< see last_checkpoint(); empty: none
};

/// Number of threads with which a rank computes.
int thread_count(const TrainingSetup& setup);

}  // namespace tessera::training
