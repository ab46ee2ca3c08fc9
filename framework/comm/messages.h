#pragma once

#include <mpi.h>

#include <cstddef>
#include <span>
#include <vector>

#include "framework/comm/run.h"

namespace tessera {

/// Messages under way in one group. Long ones travel in pieces. For this room only.
class Messages {
 public:
  Messages(MPI_Comm comm, Run& run) : comm_(comm), run_(run) {}
  Messages(Messages&&) noexcept;
  Messages& operator=(Messages&&) = delete;
  /// What has not been done is given up: for when an error is under way.
  ~Messages();

  void send(std::span<const std::byte> values, int to, int tag);
  void receive(std::span<std::byte> values, int from, int tag);

  /// Looks, and lets them go on. Throws CommError when one failed or was shorter than promised.
  bool done();
  /// Whose messages are not done.
  Missing missing() const;
  void wait(const Operation& operation);

 private:
  void add(MPI_Request request, int peer, std::size_t expected);
  void arrived(const MPI_Status& status, std::size_t index) const;

  MPI_Comm comm_;
  Run& run_;
  std::vector<MPI_Request> requests_;
  std::vector<int> peers_;
  std::vector<std::size_t> expected_;  // bytes of a receive; nothing_expected of a send
  std::size_t first_ = 0;              // those before are done
};

}  // namespace tessera
