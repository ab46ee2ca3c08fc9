#pragma once

#include <optional>
#include <string>
#include <vector>

#include "framework/resilience/state_verdict.h"
#include "framework/training/guards/state_keeper.h"

namespace tessera::training {

/// Finds state that was changed by anything else than an update (a flipped bit in memory, a faulty processor), and
/// repairs it from ranks with the same state: resilience_config.check_state_interval and check_updates.
class StateChecks {
 public:
  /// All references must outlive this object.
  StateChecks(const TrainingSetup& setup, const StateKeeper& keeper, ModelState& state, kernels::Threads& threads);

  /// Whether the state must be checked after this step.
  bool due(std::int64_t step) const;
  /// Whether updates of this rank have found damage; then call check() before the next update.
  bool damaged() const;

  struct Result {
    bool sound = true;      ///< the state of all ranks is that of an undisturbed run after its last update
    bool repaired = false;  ///< it was damaged before the check
    std::vector<std::string> notes = {};  ///< what was found, with rank and host, for the log
    std::string problem = {};             ///< what is wrong, if `sound` is false
  };
  /// Checks the state of all ranks and repairs it where possible. Call it when all ranks have completed `step` and its
  /// update, and none has begun another update. If anything was wrong, gradients computed since the update must not be
  /// used. Collective; the same result on all ranks.
  Result check(std::int64_t step);
  /// Whether updates of all ranks have stored equal checksums of state that must be equal, and have found no damage. It
  /// reads no state that several data-parallel ranks share: that memory still has what was stored is known when the
  /// next update has verified it. False: check() says what is wrong, or check_updates is off. Collective.
  bool updates_agree();
  /// Stores the checksums of the present state, after it was restored.
  void seal();

 private:
  using Checksums = std::vector<std::vector<resilience::HolderState>>;  ///< [shard][holder]
  resilience::StateVerdict verdict(bool stored = false);
  std::string own_entries(bool stored);
  void repair(const resilience::StateVerdict& verdict);
  SharedState& state_at(std::size_t shard, const resilience::Holder& holder);
  std::vector<std::string> names_of(const std::vector<int>& ranks) const;
  void remember(std::int64_t step);
  void name_those_who_were_wrong(std::int64_t step, std::vector<std::string>& notes);

  const TrainingSetup& setup_;
  const comm::Communicator& world_;
  const StateKeeper& keeper_;
  ModelState& state_;
  kernels::Threads& threads_;
  Checksums shards_;                           ///< result of the last check
  std::vector<resilience::AlikeRanks> alike_;  ///< result of the last check
  /// A step after which ranks differed and it was unknown which was wrong; known when that step is reached again.
  struct Difference {
    std::int64_t step = 0;
    Checksums shards;
    std::vector<resilience::AlikeRanks> alike;
  };
  std::optional<Difference> difference_;
};

/// Inverts a random bit of the weights and optimizer state that this rank updates. Returns a description of it.
std::string flip_a_bit(ModelState& state);

}  // namespace tessera::training
