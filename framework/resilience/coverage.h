#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "framework/resilience/resilience_options.h"

namespace tessera::resilience {

/// Weights and optimizer state that these ranks of the run have alike, so that each of them can give them to the
/// others.
struct SharedShard {
  std::size_t part =
      0;  ///< which state of a rank it is: that of the dense layers, or of the experts if others share them
  std::vector<int> ranks;  ///< ascending, at least one
  bool operator==(const SharedShard&) const = default;
};

/// A copy of such a shard that a rank on another host keeps and updates as the shard's own ranks do.
struct ShardCopy {
  std::size_t shard = 0;  ///< index in the list of shards
  int owner = 0;          ///< the first of the shard's ranks: its gradients go to the holder
  int holder = 0;
  bool operator==(const ShardCopy&) const = default;
};

/// The hosts of a run, as numbers: element r is that of rank r. Ranks of one machine have one number.
using HostOfRank = std::span<const int>;

/// The copies that make the loss of any one host harmless: one for each shard whose ranks are all on one host. The
/// holders of a host's shards take turns on the next hosts, so that no rank holds many. Empty if there is only one
/// host.
std::vector<ShardCopy> copies_of(std::span<const SharedShard> shards, HostOfRank hosts);

/// What a run survives without losing a step.
struct Coverage {
  std::string process_gap;  ///< why the death of a process loses steps; empty: it loses none
  std::string host_gap;     ///< the same of a host
  bool process() const { return process_gap.empty(); }
  bool host() const { return host_gap.empty(); }
};
/// `not_kept`: why the state of ranks does not outlive their processes; empty: it does. Pure.
Coverage coverage_of(const std::string& not_kept, std::span<const SharedShard> shards,
                     std::span<const ShardCopy> copies, HostOfRank hosts);
/// "process loss: covered; host loss: NOT covered, because ..."
std::string words_of(const Coverage& coverage);

}  // namespace tessera::resilience
