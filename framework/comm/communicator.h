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

/// A point-to-point message in flight. The destructor of an unfinished transfer waits for it and ignores a CommError,
/// which the group's next operation reports.
class Transfer {
 public:
  class State;
  Transfer();
  explicit Transfer(std::unique_ptr<State> state);
  Transfer(Transfer&&) noexcept;
  Transfer& operator=(Transfer&&) noexcept;
  ~Transfer();

  bool done();  ///< whether the message has completed; does not block, but lets MPI make progress
  void wait();  ///< blocks until the message has completed; throws CommError after the time-out

 private:
  std::unique_ptr<State> state_;
};

/// A group of ranks, for example the tensor-parallel group, and its collectives. Every member must call the same
/// collectives in the same order. Ranks are those within the group, from 0, unless a name says "world". A group of one
/// rank sends nothing and needs no MPI. Copies of a Communicator refer to the same group. Calls block until the result
/// is available. Not thread-safe: only one thread may call.
///
/// `who` names the caller ("gradients", "linear_fc2 of layer 3"); it appears in the record that the launcher reads and
/// in error messages.
///
/// Every operation throws CommError if a member has not entered it within the time-out of its World. The message names
/// the group, the operation, its caller, the missing ranks, and the operation in which each of those is. Throws
/// ShapeError if the sizes do not fit. Counts may exceed 2^31.
///
/// Sums add the ranks' contributions in the order of ranks, in fp32 (fp64 for doubles), and round once to the element
/// type. All members receive the same bits, whatever transport is used.
class Communicator {
 public:
  class State;
  Communicator();  ///< a group of this process alone
  explicit Communicator(std::shared_ptr<State> state);
  /// A group whose other members do not exist: its operations check their arguments and leave all values unchanged.
  /// Used to run the code of one rank alone, with kernels::Threads::Idle, and measure its memory.
  static Communicator unconnected(const std::string& name, std::span<const int> world_ranks, int own_rank);
  /// Whether operations exchange anything: false for an unconnected group.
  bool connected() const;

  int rank() const;                 ///< rank of this process in the group
  int size() const;                 ///< number of members
  const std::string& name() const;  ///< name of the mesh axis: "tensor", "data", ...
  bool on_one_host() const;         ///< whether all members share memory
  /// The members' ranks in the whole run, in the order of the group.
  std::span<const int> world_ranks() const;

  /// The same as World::set_time_out(): applies to the operations of all groups of this process.
  void set_time_out(std::chrono::milliseconds time) const;
  /// Time that this process has waited for other ranks so far, in the operations of all groups, in seconds.
  double waited_seconds() const;
  /// Size of the shared memory that this process uses for messages in all of its groups, in bytes.
  std::size_t message_bytes() const;

  /// Blocks until all members have called it.
  void barrier(std::string_view who) const;
  /// values = elementwise sum over the members, in place. `values` must have the same length on all members.
  void all_reduce(std::span<float> values, std::string_view who) const;
  void all_reduce(std::span<double> values, std::string_view who) const;
  /// The same for a tensor's memory with elements of `type`.
  void all_reduce(std::span<std::byte> values, DType type, std::string_view who) const;
  /// values = elementwise maximum over the members, in place; NaN where any member has NaN.
  void all_reduce_max(std::span<float> values, std::string_view who) const;
  /// `all` consists of size() equal parts; `mine` = sum over the members of part rank(). Elements have `type`. `mine`
  /// must not overlap `all`.
  void reduce_scatter(std::span<const std::byte> all, std::span<std::byte> mine, DType type,
                      std::string_view who) const;
  /// `all` = `mine` of all members, in the order of ranks; `mine` has the same size on all members. `mine` may be this
  /// member's part of `all`.
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all, std::string_view who) const;
  /// Every member sends a part of its data to every member. `send` consists of send_bytes[r] bytes for each member r,
  /// in the order of ranks; `receive` gets receive_bytes[r] bytes from each, in the same order. Both lists have size()
  /// elements, and their sums are the sizes of the arrays. What one member sends to another must have the size that the
  /// other expects; otherwise CommError is thrown (at once in shared memory, possibly only after the time-out with
  /// messages). The arrays must not overlap.
  void all_to_all(std::span<const std::byte> send, std::span<const std::size_t> send_bytes,
                  std::span<std::byte> receive, std::span<const std::size_t> receive_bytes, std::string_view who) const;
  /// `values` = `values` of rank `root`, on all members. The root sends them at most twice, or log2(size()) times if
  /// they are short.
  void broadcast(std::span<std::byte> values, int root, std::string_view who) const;

  /// Returns the texts of all members, in the order of ranks; the lengths may differ.
  std::vector<std::string> all_gather(const std::string& mine, std::string_view who) const;
  /// Returns the text of rank `root` on all members; the text of other members is ignored.
  std::string broadcast(const std::string& mine, int root, std::string_view who) const;

  /// Start a point-to-point message. A receive matches the send with the same `tag` (0 to 2^27 - 1), in order; the
  /// sizes must be equal. `values` must stay valid, and those of a send unchanged, until the transfer is done.
  Transfer send(std::span<const std::byte> values, int to, int tag, std::string_view who) const;
  Transfer receive(std::span<std::byte> values, int from, int tag, std::string_view who) const;

 private:
  friend class GroupBuffer;
  std::shared_ptr<State> state_;
};

/// Size of the shared memory that each member of a group on one host needs for messages, in bytes.
std::size_t message_bytes_of_member();

}  // namespace tessera::comm
