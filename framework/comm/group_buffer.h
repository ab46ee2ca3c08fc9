#pragma once

#include <memory>

#include "framework/comm/byte_range.h"
#include "framework/comm/communicator.h"
#include "framework/comm/shared_memory.h"

namespace tessera::comm {

/// An array of the same length on every member of a group, whose ranges are summed or gathered while the members
/// continue with other work: the main gradients (all-reduce or reduce-scatter overlapped with the backward pass), and
/// the weights, of which each rank of a distributed optimizer updates its shard. Ranks of one host read each other's
/// arrays directly; between hosts the data travels in MPI messages. Owns the memory.
///
/// Each member owns one shard of every range, in the order of ranks, as equal as possible with boundaries at multiples
/// of 64 elements. All members must make the same begin_...() calls in the same order. Between begin_...() and finish()
/// no member may change the range, and it may be summed or gathered only once.
class GroupBuffer {
 public:
  static constexpr std::size_t grain_elements = 64;                     ///< ranges begin at multiples of this
  static constexpr std::size_t grain = grain_elements * sizeof(float);  ///< the same in bytes, for float elements

  static constexpr std::size_t header_bytes = 4096;  ///< size of the header before the array in its memory

  /// Allocates an array of `bytes` zeros. Collective over the group; throws CommError if `bytes` differs between
  /// members.
  GroupBuffer(const Communicator& group, std::size_t bytes);
  /// Uses memory of the caller: header_bytes bytes, then the array, which keeps its content. `zeros`: the array
  /// contains zeros and may be used to measure the best message size. Collective; throws CommError as above.
  GroupBuffer(const Communicator& group, SharedMemory memory, bool zeros);
  ~GroupBuffer();
  GroupBuffer(GroupBuffer&&) noexcept;
  GroupBuffer& operator=(GroupBuffer&&) noexcept;

  std::span<std::byte> bytes() const;  ///< this rank's array; aligned to 64 bytes
  /// The same as floats.
  std::span<float> floats() const;

  /// The shard of `range` that member `rank` of `size` members owns; may be empty. The boundaries are the same elements
  /// for every `element_bytes`.
  static ByteRange share(ByteRange range, int rank, int size, std::size_t element_bytes = sizeof(float));

  /// Declares that this rank's `range` (float elements) is ready to be summed over the members, in the order of ranks.
  /// When it is done, the own shard holds the sum (reduce-scatter), or the whole range if `everywhere` (all-reduce).
  /// Does not block. Throws ShapeError if the range leaves the buffer or does not begin at a multiple of 64 elements.
  void begin_sum(ByteRange range, bool everywhere, std::string_view who);
  /// Declares that this rank's shard of `range` is ready; elements have `element_bytes` bytes. When it is done, the
  /// range holds the shards of all members (all-gather). Does not block. Throws ShapeError as begin_sum().
  void begin_gather(ByteRange range, std::size_t element_bytes, std::string_view who);
  /// Does what can be done without blocking. Call it regularly, because messages make no progress otherwise.
  void progress();
  /// Blocks until everything that was begun is done. Throws CommError as Communicator does.
  void finish();

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera::comm
