#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "framework/resilience/resolution.h"
#include "framework/resilience/state_file.h"
#include "framework/training/run_position.h"
#include "framework/training/state_copies.h"
#include "framework/training/training_setup.h"

namespace tessera::training {

/// What the ranks found in the memory that earlier processes left: all agree on one step.
struct FoundState {
  std::int64_t step = 0;          ///< T of resilience::StepJournal
  bool rank_is_lost = false;      ///< this rank found nothing: StateKeeper::give_to_lost gives it its state
  bool any_is_lost = false;       ///< some rank did
  bool rank_is_complete = false;  ///< this rank has committed it
  bool reported = false;          ///< it is in metrics and logs
  RunPosition position;  ///< of the first rank, if that is not lost: after T if reported, else after the step before
};

/// Keeps the state of a run in memory that outlives its processes, where resilience_config.policy and the launcher
/// allow: one resilience::StateFile for each rank in the launcher's folder, with a journal of steps and undo logs.
/// Without it the state is in this process's own memory, and the functions about steps do nothing.
class StateKeeper {
 public:
  /// Collective over the run. `setup` outlives this. Throws ConfigError if the memory was left by another recipe or
  /// program, or if resilience_config.require_host asks for what the first start does not have.
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
  /// Of a state that was found while the run went back to a checkpoint: what it keeps. The run begins with the
  /// checkpoint.
  const std::optional<RunPosition>& withdrawn() const { return withdrawn_; }
  /// The last step of a state that was found, but could not be continued because no rank has some of it; -1: there is
  /// none.
  std::int64_t given_up() const { return given_up_; }
  /// Lines to be told that were not taken yet.
  std::vector<std::string> take_notes() { return std::exchange(notes_, {}); }

  /// What the run survives; the same on all ranks.
  const resilience::Coverage& coverage() const { return coverage_; }
  /// The state that ranks have alike.
  const std::vector<resilience::SharedShard>& shards() const { return shards_; }
  /// The copies that this rank keeps for others; nullptr: none.
  StateCopies* copies() const { return copies_.get(); }

  // The steps of a rank, in this order; see resilience::StepJournal.
  void prepare(std::int64_t step, ModelState& state);
  void intend(std::int64_t step, const StepIntent& intent, nn::AuxiliaryLog& log, ModelState& state);
  /// With every update of `state`, also one that is completed: the same of the copies that this rank keeps for others.
  void update_copies(kernels::Threads& threads, const StepIntent& intent);
  void commit(std::int64_t step, const RunPosition& position);
  /// The intent of the found step, of whichever rank had it; `log` gets what was reported.
  StepIntent found_intent(nn::AuxiliaryLog& log) const;
  /// The journal gets that intent too, if this rank had none; then the update can be completed.
  void adopt_intent(ModelState& state);
  /// After the ranks that have their state completed the found step: those that have lost it get it. Collective. The
  /// next commit() makes it theirs; call ModelState::weights_changed() before.
  void give_to_lost(ModelState& state, kernels::Threads& threads);
  /// All ranks have entered an operation that follows the last commit().
  void confirm();
  /// The run goes back to a checkpoint: from here later processes do so too, and `position` is what they keep. Returns
  /// when all ranks have come here; then `state` may be overwritten, and begin() follows. Collective.
  void withdraw(const RunPosition& position);
  /// From the first commit on, later processes continue with this memory. Collective.
  void begin(std::int64_t step, const RunPosition& position, ModelState& state, kernels::Threads& threads);

 private:
  struct Part;
  void lay_out();
  void find_shards();
  void plan_copies();
  void arrange_copies(ModelState& state, kernels::Threads& threads);
  void begin_update(ModelState& state);
  void judge_coverage();
  [[noreturn]] void refuse(const std::string& why) const;
  void open();
  void find();
  void start_anew(const std::string& why);
  void adopt(const resilience::Resolution& resolution, const resilience::StepJournal& journal, bool complete);

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
  std::optional<RunPosition> withdrawn_;
  std::vector<resilience::Gift> gifts_;
  std::string position_;  ///< found_->position as it was stored
  std::int64_t given_up_ = -1;
  std::vector<std::byte> record_;  ///< in the making, or of the found step
  std::vector<std::string> notes_;
  std::vector<int> hosts_;  ///< of each rank
  std::vector<resilience::SharedShard> shards_;
  std::vector<resilience::ShardCopy> planned_copies_;
  std::unique_ptr<StateCopies> copies_;
  resilience::Coverage coverage_;
};

}  // namespace tessera::training
