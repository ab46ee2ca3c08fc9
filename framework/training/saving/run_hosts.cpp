#include "framework/training/saving/run_hosts.h"

#include <algorithm>
#include <filesystem>

#include "framework/base/error.h"
#include "framework/base/system_call.h"
#include "framework/worker/launch_link.h"

namespace tessera::training {

bool RunHosts::several() const {
  return std::any_of(first.begin(), first.end(), [](int rank) { return rank != 0; });
}

bool RunHosts::is_first(int rank) const { return first[static_cast<std::size_t>(rank)] == rank; }

std::vector<int> RunHosts::first_ranks() const {
  std::vector<int> ranks = first;
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

RunHosts hosts_of(const comm::Communicator& group) {
  std::error_code unknown;
  const auto place = text(worker::host_of_job(), ' ', std::filesystem::current_path(unknown).string());
  const auto names = group.all_gather(host_name(), "the hosts of the run");
  const auto places = group.all_gather(place, "the hosts of the run");
  RunHosts hosts{names, {}};
  for (std::size_t rank = 0; rank < names.size(); ++rank) {
    std::size_t first = 0;
    while (names[first] != names[rank] || places[first] != places[rank]) ++first;
    hosts.first.push_back(static_cast<int>(first));
  }
  return hosts;
}

}  // namespace tessera::training
