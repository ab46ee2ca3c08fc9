#pragma once

#include <mpi.h>

#include <cstddef>
#include <span>
#include <vector>

#include "framework/comm/operation.h"

namespace tessera::comm {

/// A set of MPI messages in flight in one group. Messages over 1 GiB are split. Internal to this component.
class Messages {
 public:
  Messages(MPI_Comm comm, WorldState& world) : comm_(comm), world_(world) {}
  Messages(Messages&&) noexcept;
  Messages& operator=(Messages&&) = delete;
  /// Cancels messages that are not done; this happens only while an exception is being handled.
  ~Messages();

  /// Start a message (MPI_Isend, MPI_Irecv). `values` must stay valid until done() returns true.
  void send(std::span<const std::byte> values, int to, int tag);
  void receive(std::span<std::byte> values, int from, int tag);

  /// Whether all messages are done; does not block. Throws CommError if one failed or was shorter than expected.
  bool done();
  /// Number of messages that are done, in the order in which they were started; grows while done() is false.
  std::size_t moved() const { return first_; }
  /// The ranks whose messages are not done.
  Missing missing() const;
  /// Blocks until all are done, within the time-out of `operation`.
  void wait(const Operation& operation);

 private:
  void add(MPI_Request request, int peer, std::size_t expected);
  void arrived(const MPI_Status& status, std::size_t index) const;

  MPI_Comm comm_;
  WorldState& world_;
  std::vector<MPI_Request> requests_;
  std::vector<int> peers_;
  std::vector<std::size_t> expected_;  // size in bytes of each receive; nothing_expected for a send
  std::size_t first_ = 0;              // number of messages, from the first, that are done
};

}  // namespace tessera::comm
