#include "framework/comm/messages.h"

#include <algorithm>
#include <utility>

namespace tessera::comm {
namespace {

constexpr std::size_t longest = std::size_t{1} << 30;  // bytes: MPI counts are ints
constexpr std::size_t nothing_expected = ~std::size_t{0};

/// Calls piece(part) for parts of at most 1 GiB; once for an empty message.
template <class Bytes, class Piece>
void in_pieces(Bytes values, const Piece& piece) {
  std::size_t first = 0;
  do {
    const std::size_t count = std::min(longest, values.size() - first);
    piece(values.subspan(first, count));
    first += count;
  } while (first < values.size());
}

}  // namespace

Messages::Messages(Messages&& other) noexcept
    : comm_(other.comm_),
      world_(other.world_),
      requests_(std::exchange(other.requests_, {})),
      peers_(std::exchange(other.peers_, {})),
      expected_(std::exchange(other.expected_, {})),
      first_(std::exchange(other.first_, 0)) {}

Messages::~Messages() {
  // An unfinished request holds the group's memory: cancel it, so that MPI does not write there later.
  for (MPI_Request& request : requests_) {
    if (request == MPI_REQUEST_NULL) continue;
    --world_.open_transfers;
    if (!world_.mpi) continue;
    MPI_Cancel(&request);
    MPI_Request_free(&request);
  }
}

void Messages::add(MPI_Request request, int peer, std::size_t expected) {
  requests_.push_back(request);
  peers_.push_back(peer);
  expected_.push_back(expected);
  ++world_.open_transfers;
}

void Messages::send(std::span<const std::byte> values, int to, int tag) {
  in_pieces(values, [&](std::span<const std::byte> piece) {
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Isend(piece.data(), static_cast<int>(piece.size()), MPI_BYTE, to, tag, comm_, &request), "MPI_Isend");
    add(request, to, nothing_expected);
  });
}

void Messages::receive(std::span<std::byte> values, int from, int tag) {
  in_pieces(values, [&](std::span<std::byte> piece) {
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Irecv(piece.data(), static_cast<int>(piece.size()), MPI_BYTE, from, tag, comm_, &request),
              "MPI_Irecv");
    add(request, from, piece.size());
  });
}

void Messages::arrived(const MPI_Status& status, std::size_t index) const {
  if (expected_[index] == nothing_expected) return;
  int count = 0;
  check_mpi(MPI_Get_count(&status, MPI_BYTE, &count), "MPI_Get_count");
  if (static_cast<std::size_t>(count) != expected_[index])
    throw CommError(
        text("message from rank ", peers_[index], " of the group has ", count, " bytes; expected ", expected_[index]));
}

bool Messages::done() {
  for (; first_ < requests_.size(); ++first_) {
    int flag = 0;
    MPI_Status status;
    // Tested one by one in order: MPI_Testall would not tell which message failed or is missing.
    const int code = MPI_Test(&requests_[first_], &flag, &status);
    if (code != MPI_SUCCESS) {
      requests_[first_] = MPI_REQUEST_NULL;
      --world_.open_transfers;
    }
    check_mpi(code, "MPI_Test");
    if (flag == 0) return false;
    --world_.open_transfers;
    arrived(status, first_);
  }
  requests_.clear();
  peers_.clear();
  expected_.clear();
  first_ = 0;
  return true;
}

// MPI_Request_get_status tests without freeing the request.
Missing Messages::missing() const {
  Missing ranks;
  for (std::size_t i = first_; i < requests_.size(); ++i) {
    int flag = 0;
    MPI_Status status;
    MPI_Request_get_status(requests_[i], &flag, &status);
    if (flag == 0 && std::find(ranks.begin(), ranks.end(), peers_[i]) == ranks.end()) ranks.push_back(peers_[i]);
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

void Messages::wait(const Operation& operation) {
  operation.wait([this] { return done(); }, [this] { return moved(); }, [this] { return missing(); });
}

}  // namespace tessera::comm
