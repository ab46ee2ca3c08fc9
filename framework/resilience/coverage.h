#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "framework/resilience/resilience_options.h"

namespace tessera::resilience {

/// Weights and optimizer state that are equal on several ranks of the run, so that each of them can send them to the
/// others.
struct SharedShard {
  std::size_t part = 0;    ///< which state of a rank: 0 dense layers; 1 experts, if other ranks share them
  std::vector<int> ranks;  ///< ranks that have it, ascending; at least one
  bool operator==(const SharedShard&) const = default;
};

/// A copy of a shard that a rank on another host keeps and updates in the same way as the shard's own ranks.
struct ShardCopy {
  std::size_t shard = 0;  ///< index in the list of shards
  int owner = 0;          ///< first of the shard's ranks; it sends its gradients to the holder
  int holder = 0;         ///< rank that keeps the copy
  bool operator==(const ShardCopy&) const = default;
};

/// The host of each rank: element r is the host number of rank r. Ranks of one machine have the same number.
using HostOfRank = std::span<const int>;

/// Returns the copies with which the loss of any one host loses no state: one for each shard whose ranks are all on one
/// host. The shards of a host are distributed over the ranks of the next host, so that no rank holds many. Empty if
/// there is only one host.
std::vector<ShardCopy> copies_of(std::span<const SharedShard> shards, HostOfRank hosts);

/// Which failures a run survives without losing a step.
struct Coverage {
  std::string process_gap;  ///< why the death of a process loses steps; empty: it loses none
  std::string host_gap;     ///< why the loss of a host loses steps; empty: it loses none
  bool process() const { return process_gap.empty(); }
  bool host() const { return host_gap.empty(); }
};
/// Computes the coverage. `not_kept`: why the state of ranks does not outlive their processes; empty: it does. A pure
/// function.
Coverage coverage_of(const std::string& not_kept, std::span<const SharedShard> shards,
                     std::span<const ShardCopy> copies, HostOfRank hosts);
/// Text for the log: "process loss: covered; host loss: NOT covered, because ...".
std::string words_of(const Coverage& coverage);

}  // namespace tessera::resilience
