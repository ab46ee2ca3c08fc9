#pragma once

#include <string>
#include <vector>

#include "framework/comm/communicator.h"

namespace tessera::training {

/// The hosts of the ranks of a group.
struct RunHosts {
  std::vector<std::string> names;  ///< of the host of each rank
  std::vector<int> first;          ///< of each rank: the lowest rank on its host

  bool several() const;                  ///< whether there is more than one host
  bool is_first(int rank) const;         ///< whether `rank` is the lowest on its host
  std::vector<int> first_ranks() const;  ///< the lowest rank of each host, ascending
};

/// Asks every rank for its host: its name, and its number in the job of tsrun. Ranks with different working folders
/// count as of different hosts, since the same path may be another folder for them. Collective.
RunHosts hosts_of(const comm::Communicator& group);

}  // namespace tessera::training
