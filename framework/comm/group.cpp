#include "framework/comm/group.h"

#include <algorithm>

namespace tessera {

Communicator::State::~State() {
  // The exchange may have messages in flight in `comm`.
  exchange.reset();
  if (comm != MPI_COMM_NULL && comm != MPI_COMM_WORLD && run->mpi) MPI_Comm_free(&comm);
}

std::vector<int> Communicator::State::others() const {
  std::vector<int> members;
  for (int step = 1; step < size(); ++step) members.push_back((rank + step) % size());
  return members;
}

Cut cut(std::size_t count, int rank, int size, std::size_t grain) {
  const std::size_t grains = (count + grain - 1) / grain;
  const auto begin = [&](int r) {
    return std::min(count, grains * static_cast<std::size_t>(r) / static_cast<std::size_t>(size) * grain);
  };
  return {begin(rank), begin(rank + 1)};
}

}  // namespace tessera
