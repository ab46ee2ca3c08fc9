#pragma once

#include <functional>
#include <set>

#include "framework/checkpoint/checkpoint.h"
#include "framework/training/saving/run_hosts.h"

// Checkpoints in our format whose parts are in folders of several hosts, as SaveJob divides them: the search for the
// newest that the hosts of this run have whole.

namespace tessera::training {

/// A folder of checkpoints that each host may have for itself.
struct HostFolder {
  std::filesystem::path root;
  std::string prefix;
  /// Whether the run may continue from a checkpoint that the run with this id saved.
  std::function<bool(const std::string& run)> belongs;
};

/// Result of a search.
struct FoundDivided {
  bool is_divided = false;                               ///< the hosts have different files there
  std::optional<checkpoint::CheckpointInfo> checkpoint;  ///< the newest that is whole
  std::int64_t lost_at = -1;                             ///< the newest that is not whole; -1: none
};

/// Finds the newest checkpoint of which the hosts of the run have every part: of `step`, if it is given. Each host then
/// has its index: a host that has none gets it, and one that stopped before it committed its files commits them. Newer
/// ones that are not whole are named in the `notes` of rank 0, with the hosts that saved what is missing, and stay as
/// they are. Reads no elements of tensors. Collective. Throws IoError on all ranks if a host cannot write the index.
FoundDivided newest_divided(const comm::Communicator& world, const RunHosts& hosts, const HostFolder& folder,
                            std::optional<std::int64_t> step, std::vector<std::string>& notes);

/// Commits what a host has left unfinished of a checkpoint that another host has committed, so that it is not deleted
/// as the rest of a save that came to no end. Only if the hosts of the run have all parts. Collective. Throws IoError
/// on all ranks if a host cannot write.
void complete_divided(const comm::Communicator& world, const RunHosts& hosts, const std::filesystem::path& root,
                      const std::string& prefix);

/// Of the parts of a divided checkpoint, those that a rank of this run reads.
struct PartsToRead {
  std::size_t which = 0, of = 1;   ///< its number among the ranks that read them, and their number
  std::vector<std::size_t> parts;  ///< indices
};
/// Each part is read by the ranks that have it; if several hosts do, by those of one. `here`: Checkpoint::parts_here()
/// of each rank. Parts that no rank has are rank 0's, which fails.
PartsToRead parts_to_read(const std::vector<std::vector<bool>>& here, std::size_t rank);

}  // namespace tessera::training
