#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "framework/resilience/resolution.h"
#include "framework/resilience/state_file.h"
#include "framework/training/guards/state_copies.h"
#include "framework/training/setup/training_setup.h"
#include "framework/training/step/run_position.h"

namespace tessera::training {

/// What the ranks found in the memory that earlier processes left; all agree on one step.
struct FoundState {
  std::int64_t step = 0;          ///< step T of resilience::StepJournal
  bool rank_is_lost = false;      ///< this rank found no state; give_to_lost() transfers it
  bool any_is_lost = false;       ///< some rank found no state
  bool rank_is_complete = false;  ///< this rank has committed the step
  bool reported = false;          ///< the step is in metrics and logs
  /// Position of rank 0, or of another rank if that is lost: after step T if `reported`, else after the step before.
  RunPosition position;
};

/// Keeps the state of a run in memory that outlives its processes, if resilience_config.policy and the launcher allow
/// it: one resilience::StateFile per rank in the launcher's folder, with a journal of steps and undo logs. Otherwise
/// the state is in memory of this process, and the functions about steps do nothing.
class StateKeeper {
 public:
  /// Collective over the run. `setup` must outlive this object. Throws ConfigError if the memory was left by another
  /// recipe or program, or if the first start does not have what resilience_config.require_host or policy replica
  /// demands.
  explicit StateKeeper(const TrainingSetup& setup);
  ~StateKeeper();
  StateKeeper(const StateKeeper&) = delete;
  StateKeeper& operator=(const StateKeeper&) = delete;

  /// The state of this rank: zeros, or what earlier processes left, in any case zeros for frozen parameters.
  /// Collective. Call it once.
  ModelState make_state();
  /// Whether the state outlives this process.
  bool keeps() const { return journal_.has_value(); }
  /// What earlier processes left; absent if the run begins with this process or with a checkpoint.
  const std::optional<FoundState>& found() const { return found_; }
  /// If the state was left while the run returned to a checkpoint: what the run keeps. The run then loads the
  /// checkpoint.
  const std::optional<RunPosition>& withdrawn() const { return withdrawn_; }
  /// Last step of a state that was found but cannot be continued, because parts of it are lost; -1: none.
  std::int64_t given_up() const { return given_up_; }
  /// Returns the messages for the log that have not been returned yet.
  std::vector<std::string> take_notes() { return std::exchange(notes_, {}); }

  /// Which failures the run survives; equal on all ranks.
  const resilience::Coverage& coverage() const { return coverage_; }
  /// Which ranks of the run have equal state.
  const std::vector<resilience::SharedShard>& shards() const { return shards_; }
  /// The copies that this rank keeps for other ranks; null: none.
  StateCopies* copies() const { return copies_.get(); }

  // The steps of a rank, called in this order; see resilience::StepJournal.
  void prepare(std::int64_t step, ModelState& state);
  void intend(std::int64_t step, const StepIntent& intent, nn::AuxiliaryLog& log, ModelState& state);
  /// Call it with every update of `state`, also a completed one: performs the same update on the copies of this rank.
  void update_copies(kernels::Threads& threads, const StepIntent& intent);
  void commit(std::int64_t step, const RunPosition& position);
  /// The intent of the step that was found, from a rank whose journal has it; `log` gets the reports of the step.
  StepIntent found_intent(nn::AuxiliaryLog& log) const;
  /// Writes that intent into this rank's journal if it has none, so that the update can be completed.
  void adopt_intent(ModelState& state);
  /// Transfers state to the ranks that have lost theirs, after the other ranks have completed the step that was found.
  /// Call ModelState::weights_changed() afterwards; the next commit() makes the state valid. Collective.
  void give_to_lost(ModelState& state, kernels::Threads& threads);
  /// Declares that all ranks have entered an operation that follows the last commit().
  void confirm();
  /// Begins the return to a checkpoint, which later processes also perform; `position` is what the run keeps. Returns
  /// when all ranks have called it; then `state` may be overwritten, and begin() must follow. Collective.
  void withdraw(const RunPosition& position);
  /// Begins the run with this state: from the first commit on, later processes continue from this memory. Collective.
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
  std::filesystem::path folder_;  ///< folder of the launcher; empty without one
  std::unique_ptr<resilience::StateFile> file_;
  std::optional<resilience::StepJournal> journal_;
  std::optional<FoundState> found_;
  std::optional<RunPosition> withdrawn_;
  std::vector<resilience::Gift> gifts_;
  std::string position_;  ///< found_->position, encoded
  std::int64_t given_up_ = -1;
  std::vector<std::byte> record_;  ///< record of the current step or of the step that was found
  std::vector<std::string> notes_;
  std::vector<int> hosts_;  ///< host number of each rank
  std::vector<resilience::SharedShard> shards_;
  std::vector<resilience::ShardCopy> planned_copies_;
  std::unique_ptr<StateCopies> copies_;
  resilience::Coverage coverage_;
};

}  // namespace tessera::training
