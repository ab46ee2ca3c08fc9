#include "framework/comm/group_state.h"

#include "framework/comm/operation.h"

namespace tessera::comm {

Communicator::State::~State() {
  // The exchange may have messages in flight in `comm`.
  exchange.reset();
  if (comm != MPI_COMM_NULL && comm != world->comm && world->mpi) MPI_Comm_free(&comm);
}

const Peer& Communicator::State::peer(int member) const {
  return world->peers[static_cast<std::size_t>(world_ranks[static_cast<std::size_t>(member)])];
}

void Communicator::State::set_members(std::vector<int> ranks, int own_rank) {
  world_ranks = std::move(ranks);
  rank = own_rank;
  others_.clear();
  marks_.resize(world_ranks.size());
  for (int step = 1; step < size(); ++step) others_.push_back((rank + step) % size());
}

void Communicator::State::run(Collective collective, std::string_view operation_name, std::size_t bytes,
                              std::string_view who) {
  if (!world) return;  // Communicator::unconnected
  collective.name = {operation_name, ++sequence, bytes, who};
  const Operation operation(*this, collective.name);
  try {
    exchange->begin(collective);
    operation.wait([this] { return exchange->advance(); }, [this] { return exchange->moved(); },
                   [this] { return exchange->missing(); });
  } catch (...) {
    exchange->abandon();
    throw;
  }
}

}  // namespace tessera::comm
