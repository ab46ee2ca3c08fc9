#pragma once

#include <mpi.h>

#include <memory>
#include <string>
#include <vector>

#include "framework/comm/exchange.h"
#include "framework/comm/messages.h"
#include "framework/comm/world_state.h"

namespace tessera::comm {

/// Tags of the messages in a group's own MPI communicator: collectives of private memory, buffers, users. In the
/// communicator of the world also the tags with which groups are created.
enum GroupTag {
  collectives_tag,
  tags_of_an_exchange = 3,
  first_buffer_tag = collectives_tag + tags_of_an_exchange,
  first_user_tag = 1 << 20,
  user_tags = 1 << 27,
  first_meeting_tag = 1 << 28
};

/// The state that all copies of a group's Communicator share. Internal to this component.
class Communicator::State : public std::enable_shared_from_this<Communicator::State> {
 public:
  State() = default;
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  int size() const { return static_cast<int>(world_ranks.size()); }
  /// Data about a member, by its rank in the group.
  const Peer& peer(int member) const;
  /// One byte for each member, for barriers.
  std::span<std::byte> marks() { return marks_; }
  Messages messages() const { return {comm, *world}; }
  /// The other members' ranks in the group, starting with the one after this rank. Different starts spread the
  /// messages.
  const std::vector<int>& others() const { return others_; }
  /// Sets the members (world ranks) and this process's rank in the group.
  void set_members(std::vector<int> ranks, int own_rank);

  /// Runs a collective of private memory until it is done. Uses the group's next sequence number. Throws CommError.
  void run(Collective collective, std::string_view name, std::size_t bytes, std::string_view who);

  std::string name = "alone";
  int rank = 0;
  std::vector<int> world_ranks = {0};
  std::shared_ptr<WorldState> world;   ///< null for a group of one rank, and for an unconnected one
  MPI_Comm comm = MPI_COMM_NULL;       ///< owned by this object; MPI_COMM_NULL for a group of one rank
  bool shares_memory = false;          ///< whether all members can map each other's memory
  std::unique_ptr<Exchange> exchange;  ///< transport of private memory; null for a group of one rank
  std::uint64_t sequence = 0;          ///< number of the last collective
  int buffers = 0;                     ///< GroupBuffers created so far

 private:
  std::vector<int> others_;
  std::vector<std::byte> marks_;
};

}  // namespace tessera::comm
