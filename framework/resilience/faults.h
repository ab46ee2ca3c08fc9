#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

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
  /// A return to a checkpoint. STEP: the step that is left, before loading; that of the checkpoint, after it.
  roll_back
};

/// What the process does there.
enum class FaultMode {
  kill,
  term,
  segv,
  bus,
  fpe,
  abort,
  exit,
  quit,
  error,
  hang,
  stop,
  mpiabort,
  flip,
  nan,
  inf,
  large,
  spike
};

/// A fault to be injected, to rehearse what happens then: "RANK:STEP:PHASE:MODE", or with ":START" at the end, the
/// number of the start of the job (0, the first, if absent; * every start). The modes from `nan` on change numbers that
/// the rank computed, in phase reduce: the first time that the step is computed, or with "!" after the mode every time.
struct Fault {
  bool of_numbers() const { return mode >= FaultMode::nan; }
  std::int64_t rank = 0, step = 0, start = 0;  ///< start -1: every one
  Phase phase = Phase::forward;
  FaultMode mode = FaultMode::kill;
  bool repeats = false;
  bool done = false;  ///< of numbers, or flip: it came, and does not repeat
};

/// What faults change: a sum of losses, and an element of the gradients; null: the rank has none.
struct NumbersOfRank {
  double* loss = nullptr;
  float* gradient = nullptr;
};

/// Faults of mode nan in some steps, one of `rate`, and of one of the ranks, drawn from the seed.
struct DrawnFaults {
  std::int64_t rate = 0;  ///< 0: none
  bool repeats = false;
  std::uint64_t seed = 0;
  std::int64_t ranks = 1;
  /// The rank that has one in this step; -1: none has.
  std::int64_t rank_of(std::int64_t step) const;
};

/// Throws ConfigError that says what is wrong in `words` and which words there are.
Fault read_fault(std::string_view words);

/// The faults of this process in this start.
class Faults {
 public:
  Faults() = default;
  /// Of rank `rank` of `ranks`. `start`: how often the job has been started before. Throws ConfigError if one is for a
  /// rank that does not exist.
  Faults(const std::vector<std::string>& all, std::int64_t rank, std::int64_t ranks, std::int64_t start);

  /// Whether a fault is to come in this phase of the step.
  bool expects(std::int64_t step, Phase phase) const;
  /// Causes the fault that is to come here, if there is one. Returns only if there is none, or for mode flip. Throws
  /// Error for mode error.
  void reach(std::int64_t step, Phase phase);
  /// `flip` changes one bit of weights or optimizer state, and says which.
  void flip_by(std::function<std::string()> flip) { flip_ = std::move(flip); }
  /// Adds drawn faults.
  void draw(const DrawnFaults& drawn) { drawn_ = drawn; }
  /// Causes those of `step` that change numbers. Called once each time that the step is computed.
  void change(std::int64_t step, const NumbersOfRank& numbers);

 private:
  std::int64_t rank_ = 0;
  std::vector<Fault> own_;
  DrawnFaults drawn_;
  std::int64_t last_drawn_ = -1;  ///< the last step with a drawn fault
  std::function<std::string()> flip_;
};

}  // namespace tessera::resilience
