#pragma once

#include <mpi.h>

#include <memory>
#include <string>
#include <vector>

#include "framework/comm/messages.h"
#include "framework/comm/run.h"

namespace tessera {

/// The operation of a reduction.
enum class Combine { sum, greatest };

/// A transport for the collectives of a group of at least two ranks. All members call in the same order. The arguments
/// are those of Communicator, already checked. Internal to this component.
class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual void barrier(const Operation& operation) = 0;
  virtual void all_reduce(std::span<std::byte> values, DType type, Combine how, const Operation& operation) = 0;
  virtual void reduce_scatter(std::span<const std::byte> all, std::span<std::byte> mine, DType type,
                              const Operation& operation) = 0;
  virtual void all_gather(std::span<const std::byte> mine, std::span<std::byte> all, const Operation& operation) = 0;
  virtual void broadcast(std::span<std::byte> values, int root, const Operation& operation) = 0;
};

/// Tags of the messages in a group's own MPI communicator: of collectives, of GroupBuffers, of users. In the world's
/// communicator also those with which groups are created.
enum GroupTag {
  exchange_tag,
  pieces_tag,
  sums_tag,
  first_buffer_tag,
  first_user_tag = 1 << 20,
  user_tags = 1 << 27,
  first_door_tag = 1 << 28
};

/// The state that all handles of a group share. Internal to this component.
class Communicator::State {
 public:
  State() = default;
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  Messages messages() const { return {comm, *run}; }
  /// The other members' ranks in the group, beginning with the next one. Starting at different members spreads
  /// messages.
  std::vector<int> others() const;

  std::string name = "alone";
  int rank = 0;
  std::vector<int> world_ranks = {0};
  std::shared_ptr<Run> run;       ///< null for the default-constructed group of one rank
  MPI_Comm comm = MPI_COMM_NULL;  ///< owned, if there are several members
  bool shares_memory = false;     ///< all members can map each other's memory
  std::unique_ptr<Exchange> exchange;
  std::uint64_t sequence = 0;  ///< number of the last collective
  int buffers = 0;             ///< GroupBuffers created so far

  int size() const { return static_cast<int>(world_ranks.size()); }
};

/// The two transports. `group` must outlive the result.
std::unique_ptr<Exchange> exchange_by_messages(const Communicator::State& group);
/// Collective. Null, on all members alike, if some member cannot map the shared memory. `messages` is used to set it
/// up.
std::unique_ptr<Exchange> exchange_in_shared_memory(const Communicator::State& group, Exchange& messages,
                                                    const Operation& operation);

/// The range [first, last) of `count` elements that belongs to member `rank` of `size`: as even as possible, with
/// boundaries at multiples of `grain`.
struct Cut {
  std::size_t first, last;
  std::size_t size() const { return last - first; }
};
Cut cut(std::size_t count, int rank, int size, std::size_t grain);

}  // namespace tessera
