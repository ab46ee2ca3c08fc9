#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "framework/resilience/state_sums.h"

namespace tessera::resilience {

/// A rank that has a shard: in its own state, or in the copy that it keeps for other ranks.
struct Holder {
  int rank = 0;
  bool of_copy = false;
  bool operator==(const Holder&) const = default;
};

/// What a holder reports about its shard.
struct HolderState {
  Holder holder;
  std::uint32_t checksum = 0;
  Damage found = Damage::none;  ///< damage since the last update
  Damage noted = Damage::none;  ///< damage that an earlier update has already used
};

/// Values other than shards that must be equal on several ranks, with the checksum of each rank.
struct AlikeRanks {
  std::string what;      ///< for example "weights of data-parallel ranks"
  bool derived = false;  ///< the values are computed from the shards and can be computed again
  std::vector<int> ranks;
  std::vector<std::uint32_t> checksums;
};

/// Holder `to` receives shard `shard` from holder `from`.
struct Repair {
  std::size_t shard = 0;
  Holder from, to;
  bool operator==(const Repair&) const = default;
};

/// The decision of the ranks; equal on all ranks.
struct StateVerdict {
  std::vector<Repair> repairs;  ///< after these the state is as if no damage had occurred
  bool rederive = false;        ///< values that are computed from the shards must be computed again, to the same end
  std::string problem;          ///< why the state cannot be repaired; empty: it can, or there is nothing to repair
  std::vector<int> wrong;       ///< ranks known to have wrong state, ascending
  std::vector<int> suspects;    ///< ranks that differ where it is unknown which is wrong, ascending
  bool sound() const { return repairs.empty() && !rederive && problem.empty(); }
};

/// Decides from the reports of all ranks. `shards[i]`: the holders of shard i. `checked`: holders report damage, from
/// checksums that updates store (StateSums); then holders without damage whose checksums are equal have the correct
/// state.
///
/// Call it at a point where no gradient computed since the last update will be used. Then the other shards are correct,
/// unless an earlier update has used gradients of damaged weights, which were summed over all ranks. A pure function.
StateVerdict judge(std::span<const std::vector<HolderState>> shards, std::span<const AlikeRanks> alike, bool checked);

}  // namespace tessera::resilience
