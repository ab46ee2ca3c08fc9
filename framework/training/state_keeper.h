#pragma once

#include <optional>
#include <string>
#include <vector>

#include "framework/resilience/state_file.h"
#include "framework/resilience/step_journal.h"
#include "framework/training/model_state.h"
#include "framework/training/run_position.h"
#include "framework/training/training_setup.h"

namespace tessera::training {

/// What the ranks found in the memory that earlier processes left: all agree on one step.
struct FoundState {
  std::int64_t step = 0;          ///< T of resilience::StepJournal
  bool rank_is_complete = false;  ///< this rank has committed it
  bool reported = false;          ///< the first rank has committed it, so it is in metrics and logs
  RunPosition position;           ///< of the first rank: after T if reported, else after the step before
};

/// Keeps the state of a run in memory that outlives its processes, where resilience_config.policy and the launcher allow:
/// one resilience::StateFile for each rank in the launcher's folder, with a journal of steps and undo logs. Without it the
/// state is in this process's own memory, and the functions about steps do nothing.
class StateKeeper {
 public:
  /// Collective over the run. `setup` outlives this. Throws ConfigError if the memory was left by another recipe or
  /// program.
  explicit StateKeeper(const TrainingSetup& setup);
  ~StateKeeper();
  StateKeeper(const StateKeeper&) = delete;
  StateKeeper& operator=(const StateKeeper&) = delete;

  /// The state of this rank: zeros, or what earlier processes left. Collective. Once.
  ModelState make_state();
  /// Whether the state outlives this process.
  bool keeps() const { return journal_.has_value(); }
  /// What was left; absent if the run begins with this process, or with a checkpoint.
  const std::optional<FoundState>& found() const { return found_; }
  /// Lines to be told.
  const std::vector<std::string>& notes() const { return notes_; }

  // The steps of a rank, in this order; see resilience::StepJournal.
  void prepare(std::int64_t step);
  void intend(std::int64_t step, const StepIntent& intent, nn::AuxiliaryLog& log, ModelState& state);
  void commit(std::int64_t step, const RunPosition& position);
  /// The intent of the found step, of whichever rank had it; `log` gets what was reported.
  StepIntent found_intent(nn::AuxiliaryLog& log) const;
  /// The journal gets that intent too, if this rank had none; then the update can be completed.
  void adopt_intent(ModelState& state);
  /// From the first commit on, later processes continue with this memory.
  void begin(std::int64_t step, const RunPosition& position);

 private:
  struct Part;
  void lay_out();
  void open();
  void find();
  void start_anew(const std::string& why);

  const TrainingSetup& setup_;
  const comm::Communicator& world_;
  std::vector<Part> parts_;
  std::vector<std::size_t> sections_;
  std::uint64_t layout_checksum_ = 0;
  std::size_t record_bytes_ = 0;
  std::filesystem::path folder_;  ///< of the launcher
  std::unique_ptr<resilience::StateFile> file_;
  std::optional<resilience::StepJournal> journal_;
  std::optional<FoundState> found_;
  std::vector<std::byte> record_;  ///< in the making, or of the found step
  std::vector<std::string> notes_;
};

}  // namespace tessera::training
