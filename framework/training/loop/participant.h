#pragma once

#include <functional>
#include <initializer_list>
#include <vector>

#include "framework/reporting/metrics.h"

namespace tessera::training {

/// A part of a run beside the steps: reports, saving, guards, evaluation. The loop calls every participant in the order
/// of the list, on all ranks, at the same points of the run; so each call may be collective. A participant that has
/// nothing to do in a call does not override it.
///
///     resumed                                      and after each went_back
///     begin_iteration                              each iteration, also one that is skipped
///       begin_step                                 only if it is trained
///         computed  completed                      the step; see TrainingSteps::make
///       end_step  save                             only if the step was made
///     stop                                         no step follows, unless the run goes back from here
///
/// state_checked, finish_pending and went_back can come during any of these except completed. A call may throw: then
/// later participants are not called, nothing more of the run is, and the exception ends the run. It must be thrown on
/// all ranks, or the others wait until their time-out; an IoError of one rank is a message, not an exception.
class Participant {
 public:
  Participant() = default;
  Participant(const Participant&) = delete;
  Participant& operator=(const Participant&) = delete;
  virtual ~Participant() = default;

  /// The run has its state: at its start, or after it has returned to a checkpoint.
  virtual void resumed() {}
  virtual void begin_iteration() {}
  virtual void begin_step() {}
  /// All ranks have the gradients of the step, which no damaged state has given. May be repeated.
  virtual void computed() {}
  /// The step is complete: weights, counters and rates are those after it. It is not recorded yet (Run::commit).
  virtual void completed(const reporting::StepRecord&) {}
  /// The step is recorded. Earlier processes may have made it.
  virtual void end_step() {}
  /// Saves what is due after the step.
  virtual void save() {}
  /// No step follows. `completed`: this start of the run has made the last iteration.
  virtual void stop(bool /*completed*/) {}

  /// The state of all ranks was checked. `sound`: it had no damage; else it is repaired, or the run goes back next.
  virtual void state_checked(bool /*sound*/) {}
  /// Ends what goes on beside the steps, because the state is about to be replaced, or the run to fail.
  virtual void finish_pending() {}
  /// The run has returned to a checkpoint: Run::restored.
  virtual void went_back() {}
};

/// The participants of a run, in the order in which they are called.
class Participants {
 public:
  void add(std::initializer_list<Participant*> more) { all_.insert(all_.end(), more); }
  /// Calls a function of each participant, as call(&Participant::stop, true).
  template <typename Function, typename... Arguments>
  void call(Function function, Arguments&&... arguments) const {
    for (auto* one : all_) std::invoke(function, *one, arguments...);
  }

 private:
  std::vector<Participant*> all_;
};

/// The steps that the loop makes.
class LoopSteps {
 public:
  LoopSteps() = default;
  LoopSteps(const LoopSteps&) = delete;
  LoopSteps& operator=(const LoopSteps&) = delete;
  virtual ~LoopSteps() = default;
  /// Whether no step follows: all iterations are done, or a signal asked to stop.
  virtual bool ended() const = 0;
  /// If the next iteration is to be skipped, does that and returns true.
  virtual bool skip() = 0;
  /// One step. Returns whether it was made: else it is to be computed again, or the run went back to a checkpoint.
  virtual bool make() = 0;
  /// Why the run ends after this step, agreed by all ranks; empty: it continues. Collective.
  virtual std::string reason_to_stop() = 0;
};

/// Trains until no step follows or there is a reason to stop, which it returns. `why`: a reason that is known already;
/// empty: none.
std::string run_steps(LoopSteps& steps, const Participants& participants, std::string why);

}  // namespace tessera::training
