#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "framework/base/error.h"
#include "framework/tensor/dtype.h"

namespace tessera {

/// A message on its way. Destroyed before wait(): waits.
class Transfer {
 public:
  class State;
  Transfer();
  explicit Transfer(std::unique_ptr<State> state);
  Transfer(Transfer&&) noexcept;
  Transfer& operator=(Transfer&&) noexcept;
  ~Transfer();

  bool done();  ///< looks without waiting, and lets it go on
  void wait();  ///< throws CommError after the time-out

 private:
  std::unique_ptr<State> state_;
};

/// A group of processes that share work along some axis, and what they do together. Every member calls the same
/// operations in the same order. Ranks are those of the group, from 0. A group of one process sends nothing and needs
/// no MPI. Copies are handles of one group.
///
/// `who` names the reason ("gradients", "linear_fc2 of layer 3"): it stands in the record that the launcher reads and
/// in messages. Every operation throws CommError when a member has not entered it within the time-out of its World: the
/// message names the group, the operation and who asked for it, which ranks are missing and where those are instead.
/// Counts may exceed 2^31.
///
/// Sums add the ranks' contributions in the order of ranks, in fp32 (fp64 for doubles), rounded once to the element
/// type: all members receive the same bits, whatever way the bytes travelled.
class Communicator {
 public:
  class State;
  Communicator();  ///< of this process alone
  explicit Communicator(std::shared_ptr<State> state);

  int rank() const;
  int size() const;
  const std::string& name() const;  ///< of the axis: "tensor", "data", ...
  bool on_one_host() const;         ///< all members can share memory
  /// The ranks of the members in the whole run.
  std::span<const int> world_ranks() const;

  void barrier(std::string_view who) const;
  void all_reduce(std::span<float> values, std::string_view who) const;
  void all_reduce(std::span<double> values, std::string_view who) const;
  /// Sum of tensors' bytes, elements of `type`.
  void all_reduce(std::span<std::byte> values, DType type, std::string_view who) const;
  void all_reduce_max(std::span<float> values, std::string_view who) const;
  /// `mine` becomes the sum of everybody's part rank() of `all`, which has size() equal parts.
  void reduce_scatter(std::span<const std::byte> all, std::span<std::byte> mine, DType type,
                      std::string_view who) const;
  /// `all` becomes everybody's `mine` in the order of ranks; all are equally long. `mine` may lie at its place in
  /// `all`.
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all, std::string_view who) const;
  void broadcast(std::span<std::byte> values, int root, std::string_view who) const;

  /// Texts of any length: what every rank says, in the order of ranks, known to all.
  std::vector<std::string> all_gather(const std::string& mine, std::string_view who) const;
  /// The text of `root`, on all.
  std::string broadcast(const std::string& mine, int root, std::string_view who) const;

  /// Messages between two members, matched by `tag` (0 .. 2^27 - 1) and in order. The memory stays as it is until the
  /// transfer is done.
  Transfer send(std::span<const std::byte> values, int to, int tag, std::string_view who) const;
  Transfer receive(std::span<std::byte> values, int from, int tag, std::string_view who) const;

 private:
  friend class GroupBuffer;
  std::shared_ptr<State> state_;
};

}  // namespace tessera
