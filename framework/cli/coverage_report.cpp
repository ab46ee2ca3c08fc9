#include "framework/cli/coverage_report.h"

#include <algorithm>

#include "framework/cli/layout_report.h"

namespace tessera::cli {
namespace {

std::vector<int> hosts_of(const recipe::LayoutFigures& figures, std::int64_t ranks_per_host) {
  std::vector<int> hosts;
  for (std::size_t rank = 0; rank < figures.ranks.size(); ++rank)
    hosts.push_back(ranks_per_host > 0 ? static_cast<int>(static_cast<std::int64_t>(rank) / ranks_per_host) : 0);
  return hosts;
}

std::vector<resilience::ShardCopy> copies_in(const recipe::Recipe& recipe, const recipe::LayoutFigures& figures,
                                             const std::vector<int>& hosts) {
  if (recipe.resilience.policy != resilience::Policy::replica) return {};
  return resilience::copies_of(figures.shards, hosts);
}

/// "4.10 MiB (4 299 161 bytes) on rank 3, which has most".
std::string most_of(const std::vector<std::int64_t>& sizes) {
  const auto most = std::max_element(sizes.begin(), sizes.end());
  return text(bytes(*most), " on rank ", most - sizes.begin(), sizes.size() > 1 ? ", which has most" : "");
}

}  // namespace

resilience::Coverage coverage_of(const recipe::Recipe& recipe, const recipe::LayoutFigures& figures,
                                 std::int64_t ranks_per_host) {
  const bool off = recipe.resilience.policy == resilience::Policy::off;
  const auto hosts = hosts_of(figures, ranks_per_host);
  return resilience::coverage_of(off ? "resilience_config.policy is off" : "", figures.shards,
                                 copies_in(recipe, figures, hosts), hosts);
}

std::string coverage_report(const recipe::Recipe& recipe, const recipe::LayoutFigures& figures,
                            std::int64_t ranks_per_host) {
  std::string all = "under tsrun\n";
  if (ranks_per_host > 0) all += text("  ", words_of(coverage_of(recipe, figures, ranks_per_host)), "\n");
  if (recipe.resilience.policy == resilience::Policy::off) return all;
  std::vector<std::int64_t> kept, more, copies(figures.ranks.size());
  for (const auto& rank : figures.ranks) {
    kept.push_back(rank.kept);
    more.push_back(rank.kept - rank.state.all());
  }
  all += text("  state file  ", most_of(kept), "; ", bytes(*std::max_element(more.begin(), more.end())),
              " at most are not weights, gradients or optimizer state\n");
  const auto planned = copies_in(recipe, figures, hosts_of(figures, ranks_per_host));
  for (const auto& copy : planned)
    copies[static_cast<std::size_t>(copy.holder)] +=
        figures.ranks[static_cast<std::size_t>(copy.owner)].copy[figures.shards[copy.shard].part];
  if (!planned.empty()) all += text("  copies      ", most_of(copies), "\n");
  return all;
}

}  // namespace tessera::cli
