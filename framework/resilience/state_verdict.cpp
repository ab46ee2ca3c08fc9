#include "framework/resilience/state_verdict.h"

#include <algorithm>
#include <map>

#include "framework/base/error.h"

namespace tessera::resilience {
namespace {

struct Member {
  int rank;
  std::uint32_t checksum;
};

bool differ(std::span<const Member> members) {
  return std::any_of(members.begin(), members.end(),
                     [&](const Member& one) { return one.checksum != members.front().checksum; });
}

void add(std::vector<int>& ranks, int rank) {
  const auto at = std::lower_bound(ranks.begin(), ranks.end(), rank);
  if (at == ranks.end() || *at != rank) ranks.insert(at, rank);
}

/// More than half of the members are alike: the others are wrong. Else nobody knows.
void name(std::span<const Member> members, StateVerdict& out) {
  std::map<std::uint32_t, std::size_t> counts;
  for (const auto& one : members) ++counts[one.checksum];
  const auto most =
      std::max_element(counts.begin(), counts.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  const bool majority = 2 * most->second > members.size();
  for (const auto& one : members)
    if (!majority || one.checksum != most->first) add(majority ? out.wrong : out.suspects, one.rank);
}

void judge_shard(std::size_t number, const std::vector<HolderState>& holders, StateVerdict& out) {
  std::vector<Member> right;
  std::vector<Holder> wrong;
  Holder giver;
  for (const auto& one : holders) {
    if (one.found != Damage::none || one.noted != Damage::none) {
      wrong.push_back(one.holder);
      add(out.wrong, one.holder.rank);
    } else {
      if (right.empty()) giver = one.holder;
      right.push_back({one.holder.rank, one.checksum});
    }
    if (one.noted == Damage::weights) out.problem = "gradients of damaged weights were used in an update";
  }
  if (!right.empty() && differ(right)) {
    name(right, out);
    out.problem = "ranks that must have the same weights and optimizer state differ";
  } else if (!wrong.empty() && right.empty()) {
    if (out.problem.empty()) out.problem = "no other rank has the same weights and optimizer state";
  } else {
    for (const auto& holder : wrong) out.repairs.push_back({number, giver, holder});
  }
}

}  // namespace

StateVerdict judge(std::span<const std::vector<HolderState>> shards, std::span<const AlikeRanks> alike, bool checked) {
  StateVerdict out;
  for (std::size_t i = 0; i < shards.size(); ++i) judge_shard(i, shards[i], out);
  // Damage that is known explains the rest; after its repair the ranks check again.
  if (out.sound())
    for (const auto& group : alike) {
      std::vector<Member> members;
      for (std::size_t i = 0; i < group.ranks.size(); ++i) members.push_back({group.ranks[i], group.checksums[i]});
      if (members.empty() || !differ(members)) continue;
      name(members, out);
      if (group.derived && checked)
        out.rederive = true;
      else
        out.problem = text("the ", group.what, " differ");
    }
  if (!out.problem.empty()) out.repairs.clear(), out.rederive = false;
  return out;
}

}  // namespace tessera::resilience
