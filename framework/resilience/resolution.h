#pragma once

#include <span>
#include <string>
#include <vector>

#include "framework/resilience/coverage.h"
#include "framework/resilience/step_journal.h"

namespace tessera::resilience {

/// What a rank finds when the processes of a run start again.
struct RankState {
  bool present = false;  ///< its state file exists; false: it was lost with its host, or never completed
  JournalState journal;
};

/// Rank `to` has lost a shard and receives it from rank `from`.
struct Gift {
  std::size_t shard = 0;  ///< index in the list of shards
  int from = 0, to = 0;
  bool of_copy = false;  ///< `from` sends the copy that it holds for others, not its own state
  bool operator==(const Gift&) const = default;
};

/// How the ranks continue; equal on all ranks.
struct Resolution {
  bool usable = false;      ///< the state in memory can be continued
  std::string problem;      ///< why it cannot; empty: no problem, for example a run that begins
  bool withdrawn = false;   ///< the run was returning to a checkpoint, which all ranks load now; then not usable
  std::int64_t step = 0;    ///< step T of StepJournal, which all ranks complete
  int narrator = 0;         ///< rank whose journal has the valid position; -1: no state was found
  bool reported = false;    ///< that position is after the step, so metrics and logs contain the step
  int recorder = -1;        ///< a rank whose journal has the record of the step; -1: none has it, and none needs it
  std::vector<Gift> gifts;  ///< transfers of lost shards, after the senders have completed the step
  bool lost() const { return !gifts.empty(); }
};

/// Computes how the ranks continue from what all ranks found. A rank that has lost its state receives each of its
/// shards from a rank that has it, or else from the holder of a copy; `copies` are those that the holders found and
/// that are of the same step as their own state. The position of rank 0, which writes metrics, is valid; if it is lost,
/// the position that another rank knows rank 0 had reached (JournalState::told). If any rank is withdrawn, only the
/// position of the first such rank is used. A pure function.
Resolution resolve(std::span<const RankState> ranks, std::span<const SharedShard> shards,
                   std::span<const ShardCopy> copies);

}  // namespace tessera::resilience
