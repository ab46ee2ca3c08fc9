#include "framework/resilience/coverage.h"

#include <algorithm>
#include <map>

#include "framework/base/error.h"

namespace tessera::resilience {
namespace {

int host_of(HostOfRank hosts, int rank) { return hosts[static_cast<std::size_t>(rank)]; }

bool on_one_host(const SharedShard& shard, HostOfRank hosts) {
  return std::all_of(shard.ranks.begin(), shard.ranks.end(),
                     [&](int rank) { return host_of(hosts, rank) == host_of(hosts, shard.ranks.front()); });
}

/// "rank 3", "ranks 0, 1, 2 and 5 more".
std::string words_of_ranks(const std::vector<int>& ranks) {
  constexpr std::size_t most = 4;
  std::string all = ranks.size() == 1 ? "rank " : "ranks ";
  const auto shown = ranks.size() <= most ? ranks.size() : most - 1;
  for (std::size_t i = 0; i < shown; ++i) all += text(i == 0 ? "" : ", ", ranks[i]);
  return shown < ranks.size() ? all + text(" and ", ranks.size() - shown, " more") : all;
}

}  // namespace

std::vector<ShardCopy> copies_of(std::span<const SharedShard> shards, HostOfRank hosts) {
  std::map<int, std::vector<int>> ranks_on;
  for (std::size_t r = 0; r < hosts.size(); ++r) ranks_on[hosts[r]].push_back(static_cast<int>(r));
  std::vector<ShardCopy> copies;
  if (ranks_on.size() < 2) return copies;
  std::map<int, std::size_t> turn;  // of each host: shards that it has given away
  for (std::size_t i = 0; i < shards.size(); ++i) {
    if (!on_one_host(shards[i], hosts)) continue;
    const auto owner = shards[i].ranks.front();
    // The next host in order, and its ranks in turn: every host keeps as much for others as they keep for it.
    auto next = ranks_on.upper_bound(host_of(hosts, owner));
    if (next == ranks_on.end()) next = ranks_on.begin();
    const auto number = turn[host_of(hosts, owner)]++;
    copies.push_back({i, owner, next->second[number % next->second.size()]});
  }
  return copies;
}

Coverage coverage_of(const std::string& not_kept, std::span<const SharedShard> shards,
                     std::span<const ShardCopy> copies, HostOfRank hosts) {
  Coverage out;
  if (!not_kept.empty()) {
    out.process_gap = out.host_gap = not_kept;
    return out;
  }
  if (std::all_of(hosts.begin(), hosts.end(), [&](int host) { return host == hosts.front(); })) {
    out.host_gap = "all ranks are on one host";
    return out;
  }
  std::vector<int> alone;  // ranks whose state is on one host only
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const auto own = host_of(hosts, shards[i].ranks.front());
    const bool copied = std::any_of(copies.begin(), copies.end(), [&](const ShardCopy& copy) {
      return copy.shard == i && host_of(hosts, copy.holder) != own;
    });
    if (on_one_host(shards[i], hosts) && !copied)
      alone.insert(alone.end(), shards[i].ranks.begin(), shards[i].ranks.end());
  }
  std::sort(alone.begin(), alone.end());
  alone.erase(std::unique(alone.begin(), alone.end()), alone.end());
  if (!alone.empty())
    out.host_gap = text("no other host has state that ", words_of_ranks(alone), alone.size() == 1 ? " has" : " have");
  return out;
}

std::string words_of(const Coverage& coverage) {
  const auto words = [](const std::string& gap) { return gap.empty() ? "covered" : "NOT covered, because " + gap; };
  return text("process loss: ", words(coverage.process_gap), "; host loss: ", words(coverage.host_gap));
}

}  // namespace tessera::resilience
