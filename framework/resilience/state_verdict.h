#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "framework/resilience/state_sums.h"

namespace tessera::resilience {

/// Who has a shard: a rank in its own state, or in the copy that it keeps for others.
struct Holder {
  int rank = 0;
  bool of_copy = false;
  bool operator==(const Holder&) const = default;
};

/// What a holder says of its shard.
struct HolderState {
  Holder holder;
  std::uint32_t checksum = 0;
  Damage found = Damage::none;  ///< since the last update
  Damage noted = Damage::none;  ///< by updates: one has used what was damaged
};

/// What several ranks must have alike, besides shards, with the checksum of each.
struct AlikeRanks {
  std::string what;      ///< "weights of data-parallel ranks"
  bool derived = false;  ///< it follows from the shards, and can be made from them again
  std::vector<int> ranks;
  std::vector<std::uint32_t> checksums;
};

/// `to` gets shard `shard` from `from`.
struct Repair {
  std::size_t shard = 0;
  Holder from, to;
  bool operator==(const Repair&) const = default;
};

/// What the ranks make of it; the same on all.
struct StateVerdict {
  std::vector<Repair> repairs;  ///< with them the state is as if nothing had happened
  bool rederive = false;        ///< what follows from the shards is to be made again, with the same effect
  std::string problem;          ///< why the state cannot be repaired; empty: it can, or there is nothing to repair
  std::vector<int> wrong;       ///< ranks that are known to be wrong, ascending
  std::vector<int> suspects;    ///< ranks that differ from each other, of which nobody knows who is wrong
  bool sound() const { return repairs.empty() && !rederive && problem.empty(); }
};

/// Judges. `shards[i]` are the holders of shard i. `checked`: holders tell damage, by checksums that updates keep; then
/// holders without damage whose checksums are equal are right.
///
/// Called where no gradient that was computed since the last update will be used. So the others are right unless an
/// earlier update has used gradients of damaged weights: these were summed over all ranks. Pure.
StateVerdict judge(std::span<const std::vector<HolderState>> shards, std::span<const AlikeRanks> alike, bool checked);

}  // namespace tessera::resilience
