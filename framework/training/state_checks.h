#pragma once

#include <optional>
#include <string>
#include <vector>

#include "framework/resilience/state_verdict.h"
#include "framework/training/state_keeper.h"

namespace tessera::training {

/// Finds state that changed otherwise than by an update (a flipped bit in memory, a wrong instruction), and repairs it
/// from ranks that have the same: resilience_config.check_state_interval and check_updates.
class StateChecks {
 public:
  /// None is owned; all outlive this.
  StateChecks(const TrainingSetup& setup, const StateKeeper& keeper, ModelState& state, kernels::Threads& threads);

  /// Whether the state is to be checked after this step, whatever else follows it.
  bool due(std::int64_t step) const;
  /// Whether updates of this rank found damage: then check() before the next update.
  bool damaged() const;

  struct Result {
    bool sound = true;                    ///< the state of all ranks is as after the last update of an undisturbed run
    bool repaired = false;                ///< it was not before
    std::vector<std::string> notes = {};  ///< what was found, with rank and host
    std::string problem = {};             ///< what is wrong, if not sound
  };
  /// Checks the state of all ranks, which have completed `step` and its update, and none has begun another; repairs
  /// what can be repaired. Gradients that were computed since are not to be used if anything was wrong. Collective. The
  /// same result on all ranks.
  Result check(std::int64_t step);
  /// The state was restored: what it is now is right.
  void seal();

 private:
  using Checksums = std::vector<std::vector<resilience::HolderState>>;  ///< of each shard
  resilience::StateVerdict verdict();
  std::string own_entries();
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
  Checksums shards_;                           ///< of the last check
  std::vector<resilience::AlikeRanks> alike_;  ///< the same
  /// A step after which ranks differed and nobody knew who was wrong: known when it is reached again.
  struct Difference {
    std::int64_t step = 0;
    Checksums shards;
    std::vector<resilience::AlikeRanks> alike;
  };
  std::optional<Difference> difference_;
};

/// Inverts a random bit of the weights and optimizer state that this rank updates; says which.
std::string flip_a_bit(ModelState& state);

}  // namespace tessera::training
