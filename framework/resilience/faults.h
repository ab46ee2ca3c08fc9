#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "framework/base/clock.h"

namespace tessera::resilience {

/// Where in a training step a fault can be injected.
enum class Phase {
  start,     ///< the run has been restored, and its first step has not begun; counts as step 0
  forward,   ///< before the forward and backward passes
  reduce,    ///< all gradients are final
  commit,    ///< after the all-reduce of the commit, before the update
  update,    ///< half of the elements are updated
  report,    ///< all elements are updated; metrics are not written
  gather,    ///< the step is complete
  evaluate,  ///< before an evaluation
  save,      ///< before a checkpoint is written
  /// Return to a checkpoint. The step of the fault: before the checkpoint is loaded, the step that is abandoned; after
  /// it, the step of the checkpoint.
  roll_back
};

/// What the process does when the fault occurs.
enum class FaultMode {
  kill,  ///< SIGKILL
  term,  ///< SIGTERM with its default effect; the same for the next four
  segv,
  bus,
  fpe,
  abort,
  exit,      ///< ends at once with exit code 1, without finalizing MPI
  quit,      ///< ends at once with exit code 0
  error,     ///< throws Error
  hang,      ///< sleeps for ever
  stop,      ///< SIGSTOP
  mpiabort,  ///< MPI_Abort
  slow,      ///< from this step on sleeps in phase reduce, three times as long as since phase forward; continues
  flip,      ///< changes one bit of weights or optimizer state, and continues
  nan,       ///< makes a loss and a gradient NaN; this and the following modes continue
  inf,       ///< makes a gradient infinite
  large,     ///< sets a gradient to 1e6
  spike      ///< multiplies a loss by 50
};

/// A fault to inject in a test of recovery, written "RANK:STEP:PHASE:MODE" or "RANK:STEP:PHASE:MODE:START". START is
/// the number of the start of the job: 0 (the first) if absent, * for every start. The modes nan, inf, large and spike
/// change numbers that the rank has computed, in phase reduce: the first time that the step is computed, or with "!"
/// after the mode every time.
struct Fault {
  bool of_numbers() const { return mode >= FaultMode::nan; }
  std::int64_t rank = 0, step = 0, start = 0;  ///< start -1: every start
  Phase phase = Phase::forward;
  FaultMode mode = FaultMode::kill;
  bool repeats = false;  ///< "!": the numbers are changed every time that the step is computed
  bool done = false;     ///< only modes nan to spike, flip and slow: it has occurred and does not repeat, or is told
};

/// The numbers that a fault can change: a sum of losses and an element of the gradients. Null: the rank has none.
struct NumbersOfRank {
  double* loss = nullptr;
  float* gradient = nullptr;
};

/// Random faults of mode nan: in one of `rate` steps on average, on one rank, both drawn from `seed`.
struct DrawnFaults {
  std::int64_t rate = 0;  ///< average number of steps per fault; 0: no faults
  bool repeats = false;   ///< the fault also occurs when the step is computed again
  std::uint64_t seed = 0;
  std::int64_t ranks = 1;
  /// The rank that has a fault in this step; -1: none.
  std::int64_t rank_of(std::int64_t step) const;
};

/// Reads one fault. Throws ConfigError that says what is wrong in `words` and which values are allowed.
Fault read_fault(std::string_view words);

/// The faults of this process in this start of the job.
class Faults {
 public:
  Faults() = default;
  /// Keeps the faults of rank `rank` (of `ranks`) from `all`. `start`: number of this start of the job, from 0. Throws
  /// ConfigError for a malformed fault or a rank that does not exist.
  Faults(const std::vector<std::string>& all, std::int64_t rank, std::int64_t ranks, std::int64_t start);

  /// Whether a fault is planned in this phase of the step.
  bool expects(std::int64_t step, Phase phase) const;
  /// Causes the fault that is planned in this phase of the step, if any. Returns only if there is none, and for modes
  /// flip and slow. Throws Error for mode error.
  void reach(std::int64_t step, Phase phase);
  /// Sets the function for mode flip: it changes one bit of weights or optimizer state and returns a description.
  void flip_by(std::function<std::string()> flip) { flip_ = std::move(flip); }
  /// Sets the random faults.
  void draw(const DrawnFaults& drawn) { drawn_ = drawn; }
  /// Causes the faults of `step` that change numbers. Call it once each time that the step is computed.
  void change(std::int64_t step, const NumbersOfRank& numbers);

 private:
  std::int64_t rank_ = 0;
  std::vector<Fault> own_;
  DrawnFaults drawn_;
  std::int64_t last_drawn_ = -1;  ///< the last step with a drawn fault
  Stopwatch passes_;              ///< since phase forward
  std::function<std::string()> flip_;
};

}  // namespace tessera::resilience
