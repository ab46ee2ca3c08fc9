#pragma once

#include <mpi.h>

#include <memory>
#include <string>
#include <vector>

#include "framework/comm/messages.h"
#include "framework/comm/run.h"

namespace tessera {

enum class Combine { sum, greatest };

/// One way in which the members of a group do things together. Calls come in the same order on all members, and the
/// group has two at least. For this room only.
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

/// Tags of messages in a group's own MPI communicator: of its operations, of its buffers, of users. The world's carries
/// also those with which groups are made.
enum GroupTag {
  exchange_tag,
  pieces_tag,
  sums_tag,
  first_buffer_tag,
  first_user_tag = 1 << 20,
  user_tags = 1 << 27,
  first_door_tag = 1 << 28
};

/// What the handles of a group share. For this room only.
class Communicator::State {
 public:
  State() = default;
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  Messages messages() const { return {comm, *run}; }
  /// The members' places in the group without this one's.
  std::vector<int> others() const;

  std::string name = "alone";
  int rank = 0;
  std::vector<int> world_ranks = {0};
  std::shared_ptr<Run> run;       ///< none for the group that no World made
  MPI_Comm comm = MPI_COMM_NULL;  ///< of its own, when there are several members
  bool shares_memory = false;     ///< all members map each other's memory
  std::unique_ptr<Exchange> exchange;
  std::uint64_t sequence = 0;  ///< of the last operation of all members
  int buffers = 0;             ///< GroupBuffers made so far

  int size() const { return static_cast<int>(world_ranks.size()); }
};

/// The two ways there are. `group` outlives them.
std::unique_ptr<Exchange> exchange_by_messages(const Communicator::State& group);
/// Collective; nothing, on all members alike, when a member cannot map the memory.
std::unique_ptr<Exchange> exchange_in_shared_memory(const Communicator::State& group, Exchange& messages,
                                                    const Operation& operation);

/// The element range [first, last) of `count` that belongs to member `rank` of `size`: as even as it goes, cut at
/// multiples of `grain`.
struct Cut {
  std::size_t first, last;
  std::size_t size() const { return last - first; }
};
Cut cut(std::size_t count, int rank, int size, std::size_t grain);

}  // namespace tessera
