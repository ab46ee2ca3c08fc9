#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "framework/base/error.h"
#include "framework/tensor/dtype.h"

namespace tessera::comm {

/// A point-to-point message in flight. The destructor of an unfinished one waits for it, and ignores a CommError (the
/// group's next operation reports it).
class Transfer {
 public:
  class State;
  Transfer();
  explicit Transfer(std::unique_ptr<State> state);
  Transfer(Transfer&&) noexcept;
  Transfer& operator=(Transfer&&) noexcept;
  ~Transfer();

  bool done();  ///< whether it has completed; does not block, but lets MPI make progress
  void wait();  ///< blocks; throws CommError after the time-out

 private:
  std::unique_ptr<State> state_;
};

/// A group of ranks, for example the tensor-parallel group, and its collectives. Every member calls the same
/// collectives in the same order. Ranks are those within the group, from 0, unless a name says "world". A group of one
/// rank sends nothing and needs no MPI. Copies are handles of the same group. Calls block until the result is there;
/// only one thread may call.
///
/// `who` names the caller ("gradients", "linear_fc2 of layer 3"); it appears in the record that the launcher reads and
/// in error messages.
///
/// Every operation throws CommError if a member has not entered it within the time-out of its World. The message names
/// the group, the operation, its caller, the missing ranks, and the operation in which each of those is. ShapeError:
/// the sizes given do not fit. Counts may exceed 2^31.
///
/// Sums add the ranks' contributions in the order of ranks, in fp32 (fp64 for doubles), and round once to the element
/// type. All members receive the same bits, whatever transport is used.
class Communicator {
 public:
  class State;
  Communicator();  ///< a group of this process alone
  explicit Communicator(std::shared_ptr<State> state);
  /// A group whose other members do not exist: its operations check their arguments and leave all values as they are.
  /// To execute the code of a rank alone, with kernels::Threads::Idle, and count its memory.
  static Communicator unconnected(const std::string& name, std::span<const int> world_ranks, int own_rank);
  /// Whether operations exchange anything: false for an unconnected group.
  bool connected() const;

  int rank() const;                 ///< of this process in the group
  int size() const;                 ///< members
  const std::string& name() const;  ///< of the axis: "tensor", "data", ...
  bool on_one_host() const;         ///< whether all members share memory
  /// The members' ranks in the whole run, in the order of the group.
  std::span<const int> world_ranks() const;

  /// As World::set_time_out, for the operations of all groups of this process.
  void set_time_out(std::chrono::milliseconds time) const;
  /// Seconds that this process has waited for other ranks so far, in the operations of all groups.
  double waited_seconds() const;
  /// Shared memory for messages that this process has in all of its groups, in bytes.
  std::size_t message_bytes() const;

  /// Returns when all members have called it.
  void barrier(std::string_view who) const;
  /// values = elementwise sum over the members, in place. `values` is equally long on all members.
  void all_reduce(std::span<float> values, std::string_view who) const;
  void all_reduce(std::span<double> values, std::string_view who) const;
  /// The same for the bytes of a tensor with elements of `type`.
  void all_reduce(std::span<std::byte> values, DType type, std::string_view who) const;
  /// values = elementwise maximum over the members, in place; NaN where any is NaN.
  void all_reduce_max(std::span<float> values, std::string_view who) const;
  /// `all` consists of size() equal parts; `mine` = sum over the members of part rank(). Sizes in bytes; elements of
  /// `type`. `mine` must not overlap `all`.
  void reduce_scatter(std::span<const std::byte> all, std::span<std::byte> mine, DType type,
                      std::string_view who) const;
  /// `all` = the members' `mine` in the order of ranks; `mine` has the same size on all. `mine` may be its own part of
  /// `all`.
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all, std::string_view who) const;
  /// Member r receives what each other member sends to it. `send` has send_bytes[r] bytes for each member r, in the
  /// order of ranks; `receive` gets receive_bytes[r] bytes from each, in the same order. Both lists have size()
  /// elements that add up to the size of their array; what one member sends to another must be what that one expects:
  /// otherwise CommError, in shared memory at once, by messages possibly only after the time-out. The arrays must not
  /// overlap.
  void all_to_all(std::span<const std::byte> send, std::span<const std::size_t> send_bytes,
                  std::span<std::byte> receive, std::span<const std::size_t> receive_bytes, std::string_view who) const;
  /// `values` = those of rank `root`, on all members. The root sends them at most twice, or log2(size()) times if they
  /// are short.
  void broadcast(std::span<std::byte> values, int root, std::string_view who) const;

  /// The members' texts, in the order of ranks; they may differ in length.
  std::vector<std::string> all_gather(const std::string& mine, std::string_view who) const;
  /// The text of rank `root`, on all members.
  std::string broadcast(const std::string& mine, int root, std::string_view who) const;

  /// Point-to-point messages. A receive matches the send with the same `tag` (0 .. 2^27 - 1), in order; the sizes must
  /// be equal. `values` must stay valid, and those of a send unchanged, until the transfer is done.
  Transfer send(std::span<const std::byte> values, int to, int tag, std::string_view who) const;
  Transfer receive(std::span<std::byte> values, int from, int tag, std::string_view who) const;

 private:
  friend class GroupBuffer;
  std::shared_ptr<State> state_;
};

/// Shared memory for messages of each member of a group that is on one host, in bytes.
std::size_t message_bytes_of_member();

}  // namespace tessera::comm
