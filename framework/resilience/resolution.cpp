#include "framework/resilience/resolution.h"

#include <algorithm>

#include "framework/base/error.h"

namespace tessera::resilience {
namespace {

bool can_complete(const JournalState& state, std::int64_t step) {
  return state.committed == step || state.intended == step || state.prepared == step;
}

/// Of those that are present: the first rank, or else one that knows how far that was.
int narrator_of(std::span<const RankState> ranks) {
  int chosen = -1;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    if (!ranks[r].present) continue;
    if (r == 0 || ranks[r].journal.told >= 0) return static_cast<int>(r);
    if (chosen < 0) chosen = static_cast<int>(r);
  }
  return chosen;
}

}  // namespace

Resolution resolve(std::span<const RankState> ranks, std::span<const SharedShard> shards,
                   std::span<const ShardCopy> copies) {
  Resolution out;
  const auto present = [&](int rank) { return ranks[static_cast<std::size_t>(rank)].present; };
  out.narrator = narrator_of(ranks);
  if (out.narrator < 0) return out;  // a run that begins
  const auto withdrawn = std::find_if(ranks.begin(), ranks.end(),
                                      [](const RankState& rank) { return rank.present && rank.journal.withdrawn; });
  if (withdrawn != ranks.end()) {
    out.withdrawn = true;
    out.narrator = static_cast<int>(withdrawn - ranks.begin());
    out.step = withdrawn->journal.committed;
    return out;
  }
  // An intended step counts: its update may have changed weights, which cannot be taken back on the other ranks, and
  // every rank can complete it.
  for (const auto& rank : ranks)
    if (rank.present) out.step = std::max({out.step, rank.journal.committed, rank.journal.intended});
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    if (!ranks[r].present || can_complete(ranks[r].journal, out.step)) continue;
    out.problem = text("rank ", r, " has completed step ", ranks[r].journal.committed, ", and others step ", out.step);
    return out;
  }
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const auto& holders = shards[i].ranks;
    const auto giver = std::find_if(holders.begin(), holders.end(), present);
    const auto copy = std::find_if(copies.begin(), copies.end(),
                                   [&](const ShardCopy& one) { return one.shard == i && present(one.holder); });
    for (const int rank : holders) {
      if (present(rank)) continue;
      if (giver == holders.end() && copy == copies.end()) {
        out.problem = text("the state of rank ", rank, " is lost, and no rank that is left has the same");
        return out;
      }
      const bool of_copy = giver == holders.end();  // a copy is asked for only if no rank has the shard itself
      out.gifts.push_back({i, of_copy ? copy->holder : *giver, rank, of_copy});
    }
  }
  const auto& told = ranks[static_cast<std::size_t>(out.narrator)].journal;
  // Else the lines and metrics of the step were never printed; they are made from its record.
  out.reported = (out.narrator == 0 || told.told < 0 ? told.committed : told.told) == out.step;
  for (std::size_t r = 0; r < ranks.size() && out.recorder < 0; ++r)
    if (ranks[r].present && ranks[r].journal.intended == out.step) out.recorder = static_cast<int>(r);
  out.usable = true;
  return out;
}

}  // namespace tessera::resilience
