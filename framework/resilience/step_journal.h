#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "framework/base/error.h"

namespace tessera::resilience {

/// How far one rank is with its steps. Numbers are iterations of training, counted from 1; 0: none.
struct JournalState {
  std::int64_t committed = 0;  ///< this step is complete
  std::int64_t intended = 0;   ///< the update of this step may have begun; its record is in the journal
  std::int64_t prepared = 0;   ///< the gradients of this step are final in the state file
  std::int64_t told = -1;  ///< all ranks have surely come to the position that was stored after this step; -1: unknown
  bool withdrawn = false;  ///< the run goes back to a checkpoint: of what was kept, only the newest position counts
};

/// The commit protocol of training steps in a section of the state file. In every step a rank calls, in this order,
///
///   prepare(s)           its gradients are final
///                      -- one all-reduce over the run: no rank returns from it before all have entered --
///   intend(s, record)    from here the update may change weights and optimizer state. The record, the same on all
///                        ranks, is what is needed to update on any of them, and to report the step
///   commit(s, position)  the update is complete, and so is the step's report; all other state of the run is `position`
///
/// Processes may be killed between any two instructions. Then the ranks agree on T, the maximum of all `committed` and
/// `intended`: every rank has at least prepared T, because the all-reduce of T returned somewhere. A rank that has
/// committed T is complete; one that intended T completes the update from its undo log (UndoLog); one that only
/// prepared T takes the record of T from another rank and begins. No step is lost and none is computed twice, except
/// backward passes.
///
/// A run that goes back to a checkpoint calls, between two steps,
///
///   withdraw(position)   from here the state is worth nothing; `position` says what the run keeps
///                      -- a barrier; then the state of the checkpoint is loaded; a barrier --
///   restart(step, position)
///
/// If any rank is withdrawn when the processes start again, all load the checkpoint (again) and restart().
///
/// One process and thread writes. Stores become visible to a later process in program order (x86, and release stores
/// elsewhere), since a killed process's memory stays coherent.
class StepJournal {
 public:
  /// Bytes of its section, for records of `record_bytes` and positions of at most `position_bytes`.
  static std::size_t bytes(std::size_t record_bytes, std::size_t position_bytes);
  /// In `memory`: zeros, or what an earlier process left. The memory outlives this.
  StepJournal(std::span<std::byte> memory, std::size_t record_bytes, std::size_t position_bytes);

  JournalState state() const;
  /// The same of the section of another process, which may be running; absent if there is none.
  static std::optional<JournalState> read_state(std::span<const std::byte> memory);
  /// The record of the step `intended`; valid until the next intend().
  std::span<const std::byte> record() const;
  /// The newest position that was stored completely; empty if there is none.
  std::string position() const;
  /// The newest position that all ranks have surely come to, that of JournalState::told; the newest if none is known.
  std::string told_position() const;

  void prepare(std::int64_t step);
  /// `record` is as long as the journal was told.
  void intend(std::int64_t step, std::span<const std::byte> record);
  /// Also for the beginning of a run, with the iteration it begins after, and for a new position after the same step.
  /// There are two copies in turn, so the last but one is intact until this one is complete. Throws BugError if the
  /// position is too long.
  void commit(std::int64_t step, const std::string& position);
  /// The state that follows the last commit() is given up. All ranks call it before any of them changes the state.
  void withdraw(const std::string& position);
  /// The state is that of `step` of a checkpoint, as at the beginning of a run. All ranks have loaded it.
  void restart(std::int64_t step, const std::string& position);
  /// All ranks have come to the newest position: they have entered an operation that follows it. Between two calls of
  /// commit() there is such an operation too, so without this call the position before the newest is one.
  void confirm();

 private:
  struct Header;
  struct Slot;
  Header& header() const { return *reinterpret_cast<Header*>(memory_.data()); }
  Slot& slot(std::size_t index) const;
  std::span<std::byte> text_of(std::size_t index) const;
  std::optional<std::size_t> newest() const;
  std::optional<std::size_t> told() const;
  bool valid(std::size_t index) const;
  void store(std::int64_t step, const std::string& position, bool withdrawn);
  std::string position_in(std::optional<std::size_t> index) const;

  std::span<std::byte> memory_;
  std::size_t record_bytes_, position_bytes_;
};

}  // namespace tessera::resilience
