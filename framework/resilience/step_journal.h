#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "framework/base/error.h"

namespace tessera::resilience {

/// How far one rank has come. Numbers are iterations of training, counted from 1; 0: none.
struct JournalState {
  std::int64_t committed = 0;  ///< newest step that is complete
  std::int64_t intended = 0;   ///< newest step whose update may have begun; the journal has its record
  std::int64_t prepared = 0;   ///< newest step whose gradients are final in the state file
  std::int64_t told = -1;      ///< newest step whose position all ranks are known to have reached; -1: unknown
  bool withdrawn = false;      ///< the run is returning to a checkpoint: only the newest position is valid
};

/// The commit protocol of training steps, stored in a section of the state file. "Position" is a text with all state of
/// the run besides weights, optimizer state and gradients. In every step a rank calls, in this order,
///
///   prepare(s)           its gradients are final
///                      -- one all-reduce over the run: no rank returns from it before all have entered --
///   intend(s, record)    from here the update may change weights and optimizer state. The record, equal on all ranks,
///                        is what any rank needs to update and to report the step
///   commit(s, position)  the update and the report of the step are complete; `position` is the position after it
///
/// Processes may be killed between any two instructions. Then the ranks agree on T, the maximum of all `committed` and
/// `intended`: every rank has at least prepared T, because the all-reduce of T has returned on some rank. A rank that
/// has committed T is complete; a rank that intended T completes the update from its undo log (UndoLog); a rank that
/// only prepared T takes the record of T from another rank and starts the update. No step is lost, and no forward or
/// backward pass of a prepared step is repeated.
///
/// A run that returns to a checkpoint calls, between two steps,
///
///   withdraw(position)   from here the state is invalid; `position` says what the run keeps
///                      -- a barrier; then the state of the checkpoint is loaded; a barrier --
///   restart(step, position)
///
/// If any rank is withdrawn when the processes start again, all ranks load the checkpoint (again) and call restart().
///
/// Only one thread of one process writes. A later process sees the stores in program order (on x86, and elsewhere by
/// release stores), because the memory of a killed process stays coherent.
class StepJournal {
 public:
  /// Size of the section in bytes, for records of `record_bytes` bytes and positions of at most `position_bytes` bytes.
  static std::size_t bytes(std::size_t record_bytes, std::size_t position_bytes);
  /// Uses `memory`, which contains zeros or what an earlier process left. It must outlive this object. Throws BugError
  /// if it is too short.
  StepJournal(std::span<std::byte> memory, std::size_t record_bytes, std::size_t position_bytes);

  JournalState state() const;
  /// Reads the state from the section of another process, which may be running; absent if there is no journal in it.
  static std::optional<JournalState> read_state(std::span<const std::byte> memory);
  /// The record of step `intended`; valid until the next intend().
  std::span<const std::byte> record() const;
  /// The newest position that was stored completely; empty if there is none.
  std::string position() const;
  /// The newest position that all ranks are known to have reached (JournalState::told); if none is known, the newest.
  std::string told_position() const;

  void prepare(std::int64_t step);
  /// Throws BugError if the size of `record` is not `record_bytes`.
  void intend(std::int64_t step, std::span<const std::byte> record);
  /// Also called at the beginning of a run, with the iteration after which it begins, and for a new position after the
  /// same step. Two slots are written in turn, so the previous position stays intact until the new one is complete.
  /// Throws BugError if the position is too long.
  void commit(std::int64_t step, const std::string& position);
  /// Declares the state after the last commit() invalid. All ranks call it before any of them changes the state.
  void withdraw(const std::string& position);
  /// Declares the state to be that of `step` of a checkpoint, as at the beginning of a run. Call it when all ranks have
  /// loaded the checkpoint.
  void restart(std::int64_t step, const std::string& position);
  /// Declares that all ranks have reached the newest position, because they have entered an operation that follows it.
  /// Such an operation also lies between two calls of commit(), so without this call the position before the newest one
  /// is known to be reached.
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
