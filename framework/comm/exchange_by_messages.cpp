#include <algorithm>
#include <cstring>
#include <deque>

#include "framework/comm/byte_range.h"
#include "framework/comm/exchange.h"
#include "framework/comm/group_state.h"
#include "framework/kernels/ordered_sum.h"

namespace tessera::comm {
namespace {

// Up to this size, in bytes, an all-reduce sends all values to all members, which add everything: one message latency
// instead of two. A broadcast of at most this size goes along a tree.
constexpr std::size_t short_message_bytes = 32 << 10;
// Two pieces in flight: one is combined while the next travels. More would only take memory.
constexpr std::size_t most_in_flight = 2;

using Bytes = std::span<std::byte>;
using ConstBytes = std::span<const std::byte>;

template <class Span>
Span piece_of(Span whole, std::size_t number, std::size_t bytes) {
  const std::size_t first = std::min(whole.size(), number * bytes);
  return whole.subspan(first, std::min(bytes, whole.size() - first));
}

/// What one member exchanges with each other in a collective: first contributions, which are copied to their
/// destination or combined in the order of ranks, then results.
///
///   all_reduce       each member combines its shard and sends the result to all; short ones: see short_bytes
///   sum_shards       the first half of it
///   reduce_scatter   the same for parts
///   gather_shards, all_gather, all_to_all   contributions that need no combining
///   broadcast        the root sends each member a shard, which it passes on to the others, so that the root sends the
///                    values twice however many members there are; short ones: along a binomial tree
///
/// MPI_Reduce_scatter and MPI_Allreduce promise no order of summation, and MPI's collectives cannot tell which members
/// have not come.
class Traffic {
 public:
  Traffic(const Communicator::State& group, const Collective& collective) : group_(group), c_(collective) {}

  bool combines() const {
    return c_.kind == Kind::all_reduce || c_.kind == Kind::sum_shards || c_.kind == Kind::reduce_scatter;
  }

  /// Sent to member `to` as the contribution of this one; empty: nothing is sent.
  ConstBytes contribution_to(int to) const {
    switch (c_.kind) {
      case Kind::all_reduce:
        return is_short() ? c_.values : shard(to);
      case Kind::sum_shards:
        return shard(to);
      case Kind::reduce_scatter:
        return c_.input.subspan(index(to) * c_.values.size(), c_.values.size());
      case Kind::gather_shards:
        return shard(group_.rank);
      case Kind::barrier:
      case Kind::all_gather:
        return c_.input;
      case Kind::all_to_all:
        return part(c_.input, c_.send_bytes, to);
      case Kind::broadcast:
        return group_.rank == c_.root && !is_along_a_tree() ? shard(to) : Bytes();
    }
    return {};
  }

  /// Where the contribution of member `from` arrives, unless contributions are combined.
  Bytes contribution_from(int from) const {
    switch (c_.kind) {
      case Kind::gather_shards:
        return shard(from);
      case Kind::barrier:
      case Kind::all_gather:
        return c_.values.subspan(index(from) * c_.input.size(), c_.input.size());
      case Kind::all_to_all:
        return part(c_.values, c_.receive_bytes, from);
      case Kind::broadcast:
        if (is_along_a_tree()) return from == parent_of(position()) ? c_.values : Bytes();
        return from == c_.root ? shard(group_.rank) : Bytes();
      default:
        return {};
    }
  }

  /// The own contribution, and where the combined one is written.
  ConstBytes own_contribution() const {
    return c_.kind == Kind::broadcast ? ConstBytes() : contribution_to(group_.rank);
  }
  Bytes result() const {
    if (c_.kind == Kind::reduce_scatter || (c_.kind == Kind::all_reduce && is_short())) return c_.values;
    return combines() ? shard(group_.rank) : Bytes();
  }
  /// Whether the values go along a tree: each member sends them when it has received them.
  bool is_along_a_tree() const { return c_.kind == Kind::broadcast && is_short(); }
  /// Whether the result is written over what is being sent.
  bool overwrites_contributions() const { return c_.kind == Kind::all_reduce && is_short(); }

  /// Sent to member `to` after the contributions have arrived.
  ConstBytes result_to(int to) const {
    if (c_.kind == Kind::all_reduce && !is_short()) return shard(group_.rank);
    if (c_.kind != Kind::broadcast || to == c_.root) return {};
    if (!is_short()) return shard(group_.rank);
    return parent_of(position_of(to)) == group_.rank ? c_.values : Bytes();
  }
  Bytes result_from(int from) const {
    if (c_.kind == Kind::all_reduce && !is_short()) return shard(from);
    return c_.kind == Kind::broadcast && !is_short() && group_.rank != c_.root ? shard(from) : Bytes();
  }

  /// Pieces of at most `bytes` in which all this travels; at least 1.
  std::size_t pieces(std::size_t bytes) const {
    std::size_t longest = std::max<std::size_t>(1, result().size());
    for (int r = 0; r < group_.size(); ++r)
      if (r != group_.rank)
        for (const std::size_t size : {contribution_to(r).size(), contribution_from(r).size(), result_from(r).size()})
          longest = std::max(longest, size);
    return (longest + bytes - 1) / bytes;
  }

  /// The own part of what is gathered goes to its destination.
  void copy_own_part() const {
    if (c_.kind != Kind::all_gather && c_.kind != Kind::all_to_all) return;
    const ConstBytes from = own_contribution();
    const Bytes to = contribution_from(group_.rank);
    if (!from.empty() && from.data() != to.data()) std::memmove(to.data(), from.data(), from.size());
  }

  /// Of a short broadcast: the members between this one and the root, which the values have to pass.
  Missing way_to_the_root() const {
    Missing members;
    if (is_along_a_tree())
      for (int p = position(); p != 0; p = without_lowest_bit(p)) members.push_back(parent_of(p));
    return members;
  }

 private:
  using Kind = Collective::Kind;
  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }
  static int without_lowest_bit(int p) { return p & (p - 1); }

  bool is_short() const { return c_.values.size() <= short_message_bytes; }
  Bytes shard(int rank) const {
    const ByteRange own = shard_of({0, c_.values.size()}, rank, group_.size(), c_.grain);
    return c_.values.subspan(own.first, own.count);
  }
  template <class Span>
  static Span part(Span all, std::span<const std::size_t> bytes, int rank) {
    std::size_t first = 0;
    for (const std::size_t count : bytes.first(index(rank))) first += count;
    return all.subspan(first, bytes[index(rank)]);
  }

  // The binomial tree: the root has position 0; a position's parent is the position without its lowest bit.
  int position_of(int rank) const { return (rank - c_.root + group_.size()) % group_.size(); }
  int position() const { return position_of(group_.rank); }
  int parent_of(int p) const { return p == 0 ? -1 : (without_lowest_bit(p) + c_.root) % group_.size(); }

  const Communicator::State& group_;
  const Collective& c_;
};

/// Collectives are cut into pieces of bounded size, several in flight at a time, while the caller does other work.
class ByMessages final : public Exchange {
 public:
  ByMessages(const Communicator::State& group, int tag, std::size_t piece_bytes)
      : group_(group), tag_(tag), piece_bytes_(piece_bytes), sources_(static_cast<std::size_t>(group.size())) {}

  void begin(const Collective& collective) override {
    waiting_.push(collective);
    while (start()) {
    }
  }

  bool advance() override {
    while (true) {
      while (start()) {
      }
      for (const auto& piece : in_flight_) advance(*piece);
      if (in_flight_.empty() || !advance(*in_flight_.front())) return in_flight_.empty();
      spare_.push_back(std::move(in_flight_.front()));
      in_flight_.pop_front();
      ++done_;
    }
  }

  std::uint64_t moved() const override { return begun_ + combined_ + passed_on_ + done_; }

  Missing missing() const override {
    if (in_flight_.empty()) return {};
    const Piece& oldest = *in_flight_.front();
    Missing all = oldest.in.missing();
    if (!all.empty())
      for (const int member : Traffic(group_, oldest.collective).way_to_the_root()) all.push_back(member);
    for (const Messages* messages : {&oldest.out, &oldest.results})
      for (const int member : messages->missing()) all.push_back(member);
    std::sort(all.begin(), all.end());
    all.erase(std::unique(all.begin(), all.end()), all.end());
    return all;
  }

  const OperationName& oldest() const override { return in_flight_.front()->collective.name; }

  // The destructors of unfinished messages cancel them.
  void abandon() noexcept override {
    in_flight_.clear();
    waiting_.clear();
  }

 private:
  /// The same range of everything that the collective sends and receives.
  struct Piece {
    explicit Piece(const Communicator::State& group)
        : in(group.messages()), out(group.messages()), results(group.messages()) {}
    Collective collective;
    std::size_t number = 0, order = 0;  // in its collective; of all pieces
    bool combined = false, passed_on = false;
    std::unique_ptr<std::byte[]> arrived;  // contributions to combine, in the order of ranks
    std::size_t capacity = 0;              // of `arrived`, bytes
    Messages in, out, results;
  };

  // MPI matches the messages of one tag in the order in which they were posted. Contributions are posted in the order
  // of pieces when these start, results when they are passed on; a tree's receives when the piece starts, its sends
  // later.
  int results_tag() const { return tag_ + 1; }
  int tree_tag() const { return tag_ + 2; }

  template <class Span>
  Span part(const Piece& piece, Span whole) const {
    return piece_of(whole, piece.number, piece_bytes_);
  }

  bool start() {
    if (waiting_.empty() || in_flight_.size() == most_in_flight) return false;
    if (spare_.empty()) spare_.push_back(std::make_unique<Piece>(group_));
    // Pieces are reused with their buffers, so that a sum in every step allocates nothing.
    std::unique_ptr<Piece> piece = std::move(spare_.back());
    spare_.pop_back();
    piece->collective = waiting_.front();
    piece->number = next_piece_++;
    piece->order = begun_++;
    piece->combined = piece->passed_on = false;
    const Traffic traffic(group_, piece->collective);
    if (piece->number == 0) traffic.copy_own_part();
    if (traffic.combines()) {
      receive_to_combine(*piece, part(*piece, traffic.result()).size());
    } else {
      for (const int other : group_.others())
        if (const auto theirs = part(*piece, traffic.contribution_from(other)); !theirs.empty())
          piece->in.receive(theirs, other, traffic.is_along_a_tree() ? tree_tag() : tag_);
    }
    for (const int other : group_.others())
      if (const auto theirs = part(*piece, traffic.contribution_to(other)); !theirs.empty())
        piece->out.send(theirs, other, tag_);
    if (next_piece_ == traffic.pieces(piece_bytes_)) {
      waiting_.pop();
      next_piece_ = 0;
    }
    in_flight_.push_back(std::move(piece));
    return true;
  }

  void receive_to_combine(Piece& piece, std::size_t bytes) {
    if (bytes == 0) return;
    if (const std::size_t needed = bytes * group_.others().size(); piece.capacity < needed) {
      piece.capacity = needed;
      piece.arrived = std::make_unique_for_overwrite<std::byte[]>(needed);
    }
    std::byte* at = piece.arrived.get();
    for (int member = 0; member < group_.size(); ++member) {
      if (member == group_.rank) continue;
      piece.in.receive({at, bytes}, member, tag_);
      at += bytes;
    }
  }

  // The own contribution is added in the order of ranks, so the sum is the same as with shared memory.
  void combine(Piece& piece, const Traffic& traffic) {
    const auto own = part(piece, traffic.own_contribution());
    const auto result = part(piece, traffic.result());
    const std::byte* arrived = piece.arrived.get();
    for (int r = 0; r < group_.size(); ++r) {
      sources_[static_cast<std::size_t>(r)] = r == group_.rank ? own.data() : arrived;
      if (r != group_.rank) arrived += own.size();
    }
    std::byte* const out = result.data();
    const Collective& c = piece.collective;
    const std::size_t count = own.size() / size_of(c.type);
    if (c.how == Combine::sum)
      kernels::ordered_sum(sources_, std::span(&out, 1), {}, count, c.type);
    else
      kernels::greatest(sources_, std::span(&out, 1), count);
  }

  // In the order of pieces: see results_tag().
  bool advance(Piece& piece) {
    const Traffic traffic(group_, piece.collective);
    if (!piece.combined && combined_ == piece.order && piece.in.done() &&
        (!traffic.overwrites_contributions() || piece.out.done())) {
      if (traffic.combines()) combine(piece, traffic);
      for (const int other : group_.others())
        if (const auto result = part(piece, traffic.result_to(other)); !result.empty())
          piece.results.send(result, other, traffic.is_along_a_tree() ? tree_tag() : results_tag());
      piece.combined = true;
      ++combined_;
    }
    // The results are received where the contributions were sent from, so those must have left first.
    if (!piece.passed_on && passed_on_ == piece.order && piece.out.done()) {
      for (const int other : group_.others())
        if (const auto result = part(piece, traffic.result_from(other)); !result.empty())
          piece.results.receive(result, other, results_tag());
      piece.passed_on = true;
      ++passed_on_;
    }
    return piece.combined && piece.passed_on && piece.results.done();
  }

  const Communicator::State& group_;
  int tag_;
  std::size_t piece_bytes_;
  CollectiveQueue waiting_;                                            // of which not all pieces have begun
  std::size_t next_piece_ = 0;                                         // of the first of them
  std::uint64_t begun_ = 0, combined_ = 0, passed_on_ = 0, done_ = 0;  // pieces that have come to each stage
  std::deque<std::unique_ptr<Piece>> in_flight_;
  std::vector<std::unique_ptr<Piece>> spare_;
  std::vector<const std::byte*> sources_;
};

}  // namespace

std::unique_ptr<Exchange> exchange_by_messages(const Communicator::State& group, int tag, std::size_t piece_bytes) {
  return std::make_unique<ByMessages>(group, tag, piece_bytes);
}

}  // namespace tessera::comm
