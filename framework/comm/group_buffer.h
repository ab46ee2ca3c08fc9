#pragma once

#include <memory>

#include "framework/comm/byte_range.h"
#include "framework/comm/communicator.h"
#include "framework/comm/shared_memory.h"

namespace tessera::comm {

/// An array that every member of a group has, equally long, and whose ranges are summed or gathered while the members
/// continue with other work: the main gradients (all-reduce or reduce-scatter overlapped with the backward pass), and
/// the weights, of which each rank of a distributed optimizer updates its shard. Owns the memory. Ranks of one host
/// read each other's arrays directly; between hosts the data travels in MPI messages.
///
/// Each member owns one shard of every range, in the order of ranks, as even as possible with boundaries at multiples
/// of 64 elements. All members make the same begin_... calls in the same order. Between begin_... and finish() nobody
/// may change the range, and it may be summed or gathered only once.
class GroupBuffer {
 public:
  static constexpr std::size_t grain_elements = 64;                     ///< ranges begin at multiples of this
  static constexpr std::size_t grain = grain_elements * sizeof(float);  ///< the same in bytes, for floats

  static constexpr std::size_t header_bytes = 4096;  ///< of its memory, before the array

  /// Collective over the group, with the same `bytes`; throws CommError if they differ. New memory, of zeros.
  GroupBuffer(const Communicator& group, std::size_t bytes);
  /// The same in memory of the caller, whose array keeps its content: header_bytes, then the array. `zeros`: it
  /// contains zeros, so that the size of messages can be measured with it.
  GroupBuffer(const Communicator& group, SharedMemory memory, bool zeros);
  ~GroupBuffer();
  GroupBuffer(GroupBuffer&&) noexcept;
  GroupBuffer& operator=(GroupBuffer&&) noexcept;

  std::span<std::byte> bytes() const;  ///< this rank's array; 64-byte aligned
  /// The same as floats.
  std::span<float> floats() const;

  /// The shard of `range` that member `rank` of `size` owns; may be empty. Contains the same elements whatever their
  /// size in bytes.
  static ByteRange share(ByteRange range, int rank, int size, std::size_t element_bytes = sizeof(float));

  /// Declares this rank's `range` (floats) ready to be summed over the members, in the order of ranks. When done, the
  /// own shard holds the sum (reduce-scatter); with `everywhere` the whole range does (all-reduce). Does not block.
  /// Throws ShapeError if the range leaves the buffer or does not begin at a multiple of 64 elements.
  void begin_sum(ByteRange range, bool everywhere, std::string_view who);
  /// Declares this rank's shard of `range` ready; elements have `element_bytes` bytes. When done, the range holds the
  /// shards of all members (all-gather). Does not block. Throws as begin_sum.
  void begin_gather(ByteRange range, std::size_t element_bytes, std::string_view who);
  /// Does what can be done without blocking. Call it regularly: nothing else makes messages progress.
  void progress();
  /// Blocks until everything that was begun is done. Throws CommError as Communicator does.
  void finish();

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera::comm
