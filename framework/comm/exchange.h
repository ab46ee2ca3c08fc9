#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "framework/comm/communicator.h"
#include "framework/comm/shared_memory.h"

namespace tessera::comm {

/// How the members' values become one result.
enum class Combine { sum, greatest };

/// Ranks in the group for which an operation waits.
using Missing = std::vector<int>;

/// How records and error messages describe an operation.
struct OperationName {
  std::string_view operation;  ///< "all_reduce"
  std::uint64_t sequence = 0;  ///< number of the collective in its group, from 1; 0: a point-to-point message
  std::size_t bytes = 0;       ///< size of the data
  std::string_view who;        ///< the caller
};

/// One collective. Memory that the spans and names refer to must stay valid until the collective is done. Sizes are in
/// bytes and have been checked by the caller. The shards of `values` are those of shard_of() with `grain`.
struct Collective {
  enum class Kind {
    barrier,         ///< input: one byte; values: one byte for each member
    all_reduce,      ///< values: combined over the members
    sum_shards,      ///< values: this member's shard becomes the sum over the members
    gather_shards,   ///< values: every member's shard is copied to all members
    reduce_scatter,  ///< input: a part for each member; values: the sum over the members of this member's part
    all_gather,      ///< input: this member's part; values: the parts of all
    broadcast,       ///< values: those of `root`, on all members
    all_to_all       ///< input: send_bytes[r] for each member r; values: receive_bytes[r] from each
  };
  Kind kind = Kind::barrier;
  std::span<const std::byte> input = {};
  std::span<std::byte> values = {};
  DType type = DType::float32;
  Combine how = Combine::sum;
  int root = 0;
  std::size_t grain = 64;
  std::span<const std::size_t> send_bytes = {}, receive_bytes = {};
  OperationName name = {};
};

/// A transport. Executes the collectives of a group of at least two ranks in the order in which they were begun; all
/// members begin the same collectives in the same order. A blocking collective is begin(), then advance() until it
/// returns true. Internal to this component.
class Exchange {
 public:
  virtual ~Exchange() = default;
  /// Queues a collective; does not block.
  virtual void begin(const Collective& collective) = 0;
  /// Does what can be done without blocking. Returns whether all collectives that were begun are done. Throws
  /// CommError.
  virtual bool advance() = 0;
  /// Counter of completed rounds, shards or pieces; it grows whenever advance() has made progress.
  virtual std::uint64_t moved() const = 0;
  /// The members for which the oldest collective waits.
  virtual Missing missing() const = 0;
  /// The oldest collective that is not done. Call it only after advance() has returned false.
  virtual const OperationName& oldest() const = 0;
  /// After an error: discards the collectives that were begun, so that nothing is written to their callers' memory any
  /// more. The group cannot be used for collectives afterwards.
  virtual void abandon() noexcept = 0;
};

/// Default size of a message, in bytes, if no better size has been measured.
inline constexpr std::size_t default_piece_bytes = 4 << 20;

/// Transport for any memory: MPI messages of at most `piece_bytes` bytes with three tags, from `tag`, of the group's
/// MPI communicator. `group` must outlive the result; this holds for all transports.
std::unique_ptr<Exchange> exchange_by_messages(const Communicator::State& group, int tag,
                                               std::size_t piece_bytes = default_piece_bytes);

/// Transport for any memory of ranks on one host: copies through slots in shared memory. Collective over the group;
/// uses the group's present transport. Returns null, on all members, if some member cannot map the shared memory.
std::unique_ptr<Exchange> exchange_in_slots(Communicator::State& group);
/// The same with shared memory that is already mapped: slots_bytes() bytes, initially zeros, shared by all members.
std::unique_ptr<Exchange> exchange_in_slots(const Communicator::State& group,
                                            std::shared_ptr<const SharedMemory> memory);
std::size_t slots_bytes(int members);

/// Number of bytes before the array in the memory for exchange_in_arrays(); they are initially zeros.
inline constexpr std::size_t array_header_bytes = 4096;

/// Transport for arrays that ranks on one host share. `own` consists of array_header_bytes bytes and the array; the
/// `values` of every collective are ranges of the array. Only for all_reduce (sums), sum_shards and gather_shards.
/// Collective over the group, with the same size on all members. Returns null, on all members, if some member cannot
/// map the arrays. `own` must outlive the result; its descriptor is closed.
std::unique_ptr<Exchange> exchange_in_arrays(Communicator::State& group, SharedMemory& own);
/// The same with memory that is already mapped: `memory[r]` is that of member r, this member included. It must outlive
/// the result.
std::unique_ptr<Exchange> exchange_in_arrays(const Communicator::State& group, std::vector<std::byte*> memory);

/// The collectives that were begun and are not done, oldest first. Reuses its memory, so that a steady state allocates
/// nothing.
class CollectiveQueue {
 public:
  bool empty() const { return first_ == all_.size(); }
  const Collective& front() const { return all_[first_]; }
  void clear() noexcept {
    all_.clear();
    first_ = 0;
  }
  void push(const Collective& one) { all_.push_back(one); }
  void pop() {
    if (++first_ == all_.size()) clear();
  }

 private:
  std::vector<Collective> all_;
  std::size_t first_ = 0;
};

}  // namespace tessera::comm
