#pragma once

#include <span>
#include <string>
#include <vector>

#include "framework/resilience/coverage.h"
#include "framework/resilience/step_journal.h"

namespace tessera::resilience {

/// What a rank finds when the processes of a run start again.
struct RankState {
  bool present = false;  ///< its state file is there; else it was lost, with its host or before it was complete
  JournalState journal;
};

/// Rank `to` has lost a shard and gets it from rank `from`, out of that rank's own state or out of its copy.
struct Gift {
  std::size_t shard = 0;  ///< index in the list of shards
  int from = 0, to = 0;
  bool of_copy = false;
  bool operator==(const Gift&) const = default;
};

/// How the ranks continue: the same on all of them.
struct Resolution {
  bool usable = false;      ///< else the state in memory cannot be continued
  std::string problem;      ///< why not; empty: there is none
  bool withdrawn = false;   ///< the run was going back to a checkpoint, which all ranks load now; not usable
  std::int64_t step = 0;    ///< T of StepJournal: all ranks complete it
  int narrator = 0;         ///< the position in this rank's journal counts
  bool reported = false;    ///< that position is after the step, so the step is in metrics and logs
  int recorder = -1;        ///< a rank whose journal has the record of the step; -1: none has, and none needs it
  std::vector<Gift> gifts;  ///< after the givers have completed the step
  bool lost() const { return !gifts.empty(); }
};

/// Decides it from what all ranks found. A rank that has lost its state gets each of its shards from a rank that has
/// it, or else from the holder of a copy: one of `copies`, those that holders found and that are of the same step as
/// their own state. The position of the first rank counts, which writes metrics; if that is lost, what another rank
/// knows that the first one did (JournalState::told). If any rank is withdrawn, the position of the first such rank
/// counts, and nothing else. Pure.
Resolution resolve(std::span<const RankState> ranks, std::span<const SharedShard> shards,
                   std::span<const ShardCopy> copies);

}  // namespace tessera::resilience
