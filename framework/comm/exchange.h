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

/// How contributions become one result.
enum class Combine { sum, greatest };

/// Ranks in the group that an operation is waiting for.
using Missing = std::vector<int>;

/// What records and error messages say of an operation.
struct OperationName {
  std::string_view operation;  ///< "all_reduce"
  std::uint64_t sequence = 0;  ///< number of the collective in its group, from 1; 0: a point-to-point message
  std::size_t bytes = 0;
  std::string_view who;  ///< the caller
};

/// One collective. The memory that the spans and names refer to must stay valid until it is done. Sizes in bytes,
/// checked by the caller. The shards of `values` are those of shard_of() with `grain`.
struct Collective {
  enum class Kind {
    barrier,         ///< input: one byte; values: one byte for each member
    all_reduce,      ///< values: combined over the members
    sum_shards,      ///< values: the own shard of them is summed over the members
    gather_shards,   ///< values: every member's shard of them is copied to all members
    reduce_scatter,  ///< input: a part for each member; values: the sum over the members of this member's part
    all_gather,      ///< input: this member's part; values: the parts of all
    broadcast,       ///< values: those of `root`
    all_to_all       ///< input: a part of send_bytes[r] for each member r; values: receive_bytes[r] from each
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

/// A transport: executes the collectives of a group of at least two ranks in the order in which they were begun. All
/// members begin the same ones in the same order. A blocking collective is begin() and advance() until it returns true.
/// Internal to this component.
class Exchange {
 public:
  virtual ~Exchange() = default;
  /// Queues a collective; does not block.
  virtual void begin(const Collective& collective) = 0;
  /// Does what can be done without blocking. Returns whether everything that was begun is done. Throws CommError.
  virtual bool advance() = 0;
  /// Grows whenever advance() has come further: counts what is done of it: turns, shards, or pieces.
  virtual std::uint64_t moved() const = 0;
  /// The members that the oldest collective is waiting for.
  virtual Missing missing() const = 0;
  /// The oldest collective that is not done; requires that advance() has returned false.
  virtual const OperationName& oldest() const = 0;
  /// After an error: forgets what was begun, so that nothing is written to the memory of its callers any more. The
  /// group cannot be used for collectives any more.
  virtual void abandon() noexcept = 0;
};

/// Best size of a message, if it has not been measured, in bytes.
inline constexpr std::size_t default_piece_bytes = 4 << 20;

/// Any memory, by MPI messages of at most `piece_bytes` with three tags, from `tag`, of the group's communicator.
/// `group` must outlive the result; that holds for all transports.
std::unique_ptr<Exchange> exchange_by_messages(const Communicator::State& group, int tag,
                                               std::size_t piece_bytes = default_piece_bytes);

/// Any memory of ranks of one host, copied through slots in shared memory. Collective over the group; uses its present
/// exchange. Null, on all members alike, if some member cannot map the shared memory.
std::unique_ptr<Exchange> exchange_in_slots(Communicator::State& group);
/// The same in memory that is already mapped: slots_bytes() bytes, initially zeros, of all members.
std::unique_ptr<Exchange> exchange_in_slots(const Communicator::State& group,
                                            std::shared_ptr<const SharedMemory> memory);
std::size_t slots_bytes(int members);

/// Bytes before the array in the memory that exchange_in_arrays takes; initially zeros.
inline constexpr std::size_t array_header_bytes = 4096;

/// Arrays that ranks of one host share: `own` has array_header_bytes and then the array, whose ranges are the `values`
/// of every collective. Only all_reduce (sums), sum_shards and gather_shards. Collective over the group, with the same
/// size on all members; null as above. `own` must outlive the result; its descriptor is closed.
std::unique_ptr<Exchange> exchange_in_arrays(Communicator::State& group, SharedMemory& own);
/// The same with memory that is already mapped: of each member, its own included, by rank. It must outlive the result.
std::unique_ptr<Exchange> exchange_in_arrays(const Communicator::State& group, std::vector<std::byte*> memory);

/// The collectives that were begun and are not done, the oldest first. Keeps its memory, so that a steady state
/// allocates nothing.
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
