#pragma once

#include <memory>

#include "framework/comm/communicator.h"

namespace tessera {

/// A part of a buffer, in bytes.
struct ByteRange {
  std::size_t first = 0, count = 0;
};

/// An array that every member of a group has, equally long, whose ranges are summed or gathered while the members go on
/// with other work: main gradients, and weights of which each member updates a share. Owns the memory. Inside one host
/// members read each other's arrays directly; else messages travel.
///
/// Each member owns one share of every range, cut at multiples of 64 elements as evenly as they go, in the order of
/// ranks. The same begin_... calls come in the same order on all members. Nobody changes a range between begin_... and
/// finish(), and a range is summed or gathered once between them.
class GroupBuffer {
 public:
  static constexpr std::size_t grain_elements = 64;                     ///< ranges begin at multiples of so many
  static constexpr std::size_t grain = grain_elements * sizeof(float);  ///< the same in bytes, of floats

  /// Collective over the group, with the same `bytes`. Throws CommError when they differ.
  GroupBuffer(const Communicator& group, std::size_t bytes);
  ~GroupBuffer();
  GroupBuffer(GroupBuffer&&) noexcept;
  GroupBuffer& operator=(GroupBuffer&&) noexcept;

  std::span<std::byte> bytes() const;  ///< this member's array; begins at a multiple of 64 bytes, zeros at first
  std::span<float> floats() const;

  /// Which part of `range` belongs to member `rank` of `size`; may be empty. The same elements whatever their bytes.
  static ByteRange share(ByteRange range, int rank, int size, std::size_t element_bytes = sizeof(float));

  /// Say that this member's `range` is ready, floats to be summed over the members in the order of ranks. When done,
  /// the own share holds the sum; with `everywhere` the whole range does.
  void begin_sum(ByteRange range, bool everywhere, std::string_view who);
  /// Say that this member's share of `range`, of elements of so many bytes, is ready; when done, the range holds
  /// everybody's shares.
  void begin_gather(ByteRange range, std::size_t element_bytes, std::string_view who);
  /// Do what can be done without waiting for anybody.
  void progress();
  /// Wait until everything that was begun is done. Throws CommError as Communicator does.
  void finish();

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera
