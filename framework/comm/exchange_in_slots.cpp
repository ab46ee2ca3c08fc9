#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <vector>

#include "framework/comm/byte_range.h"
#include "framework/comm/exchange.h"
#include "framework/comm/group_state.h"
#include "framework/comm/operation.h"
#include "framework/kernels/ordered_sum.h"

namespace tessera::comm {
namespace {

// Bytes of a member's slot. Large, so that few turns are needed: each may have to wait for a member that the operating
// system has descheduled.
constexpr std::size_t slot_bytes = 1 << 20;
constexpr std::size_t slots = 3;                    // turns whose values may be in use at the same time
constexpr std::size_t short_slot_bytes = 16 << 10;  // up to here each member adds everything, in one turn
constexpr std::size_t least_streamed = 4 << 10;     // bytes: below, non-temporal stores do not pay

/// The counters of a member in the shared memory; only it writes them. Initially zeros. 128 bytes, because processors
/// prefetch pairs of cache lines.
struct alignas(128) Line {
  std::atomic<std::uint64_t> turn;                    // the newest turn it has come to
  std::array<std::atomic<std::uint64_t>, 2> tickets;  // which operation it is in, by parity of the turn
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

/// A hash of the collective and its size, to detect that members have entered different ones (FNV-1a). The sizes of an
/// all_to_all differ; the members tell each other.
std::uint64_t ticket_of(const Collective& c) {
  std::uint64_t hash = 0xcbf29ce484222325;
  const auto mix = [&hash](std::uint64_t value) { hash = (hash ^ value) * 0x100000001b3; };
  mix(static_cast<std::uint64_t>(c.kind));
  mix(static_cast<std::uint64_t>(c.how));
  mix(static_cast<std::uint64_t>(c.root));
  mix(c.kind == Collective::Kind::all_to_all ? 0 : c.values.size());
  return hash;
}

std::size_t sum_of(std::span<const std::size_t> counts) {
  std::size_t sum = 0;
  for (const std::size_t count : counts) sum += count;
  return sum;
}

/// Members work in turns. Before a turn each may write its slot of that turn (lay_out); when all have come to the turn,
/// each reads the others' slots (take). The content of a slot may be read until the reader comes to the next turn but
/// one; so three slots, used cyclically, need no further synchronization.
///
///   all_reduce       a pipeline over pieces: in each turn, piece k is laid out, piece k - 1 is reduced by shards, and
///                    after the turn the sums of piece k - 1 are fetched
///   reduce_scatter, all_gather, broadcast   one piece in each turn
///   all_to_all       each member lays out what it sends as one stream, a piece in each turn; the first turn also
///                    tells the sizes, so all know how many turns it takes
class InSlots final : public Exchange {
 public:
  InSlots(const Communicator::State& group, std::shared_ptr<const SharedMemory> memory)
      : group_(group),
        memory_(std::move(memory)),
        sources_(static_cast<std::size_t>(group.size())),
        streams_(static_cast<std::size_t>(group.size())) {}

  void begin(const Collective& collective) override { waiting_.push(collective); }

  bool advance() override {
    while (!waiting_.empty()) {
      const Collective& c = waiting_.front();
      if (!come_) {
        if (step_ == 0) last_step_ = turns(c) - 1;
        lay_out(c);
        come_to_next_turn(c);
      }
      if (!all_have_come(c)) return false;
      come_ = false;
      take(c);
      if (step_++ < last_step_) continue;
      step_ = 0;
      waiting_.pop();
    }
    return true;
  }

  std::uint64_t moved() const override { return turn_; }
  Missing missing() const override {
    Missing ranks;
    for (int r = 0; r < group_.size(); ++r)
      if (line(r).turn.load(std::memory_order_relaxed) < turn_) ranks.push_back(r);
    return ranks;
  }
  const OperationName& oldest() const override { return waiting_.front().name; }
  void abandon() noexcept override { waiting_.clear(); }

 private:
  using Kind = Collective::Kind;
  /// The bytes that another member sends in an all_to_all: those for this member, and all.
  struct Stream {
    ByteRange own;
    std::size_t bytes = 0;
  };

  std::size_t members() const { return static_cast<std::size_t>(group_.size()); }
  std::size_t own() const { return static_cast<std::size_t>(group_.rank); }
  Line& line(int member) const { return reinterpret_cast<Line*>(memory_->data())[member]; }
  std::byte* slot(int member, std::uint64_t turn) const {
    return memory_->data() + members() * sizeof(Line) +
           (turn % slots * members() + static_cast<std::size_t>(member)) * slot_bytes;
  }
  std::byte* next_slot() const { return slot(group_.rank, turn_ + 1); }

  static void fetch(std::span<const std::byte> from, std::byte* to) {
    kernels::copy_bytes(from.data(), to, from.size());
  }
  static void give(std::span<const std::byte> from, std::byte* to) {
    if (from.size() < least_streamed)
      kernels::copy_bytes(from.data(), to, from.size());
    else
      kernels::stream_bytes(from.data(), to, from.size());
  }

  /// The release store publishes the slot that was written before.
  void come_to_next_turn(const Collective& c) {
    const std::uint64_t turn = ++turn_;
    Line& mine = line(group_.rank);
    ticket_ = ticket_of(c);
    mine.tickets[turn % 2].store(ticket_, std::memory_order_relaxed);
    mine.turn.store(turn, std::memory_order_release);
    come_ = true;
    seen_ = 0;
  }

  /// Throws CommError if one of them is in another collective.
  bool all_have_come(const Collective& c) {
    for (; seen_ < group_.others().size(); ++seen_) {
      const int other = group_.others()[seen_];
      const Line& theirs = line(other);
      if (theirs.turn.load(std::memory_order_acquire) < turn_) return false;
      if (theirs.tickets[turn_ % 2].load(std::memory_order_relaxed) != ticket_) disagree(group_, c.name, other);
    }
    return true;
  }

  // Of one turn of a collective: how many bytes of the values, or of each part of them, go in it.
  std::size_t capacity(const Collective& c) const {
    if (c.kind == Kind::reduce_scatter) return slot_bytes / members() / 64 * 64;
    return c.kind == Kind::all_to_all ? slot_bytes - header_bytes() : slot_bytes;
  }
  /// The sizes that the first slot of an all_to_all tells.
  std::size_t header_bytes() const { return (members() * sizeof(std::size_t) + 63) / 64 * 64; }
  static std::size_t ceil_div(std::size_t a, std::size_t b) { return (a + b - 1) / b; }

  /// Of an all_to_all only the first is known.
  std::size_t turns(const Collective& c) const {
    if (c.kind == Kind::all_reduce && c.values.size() > short_slot_bytes)
      return ceil_div(c.values.size(), slot_bytes) + 1;
    const std::size_t bytes = c.kind == Kind::all_gather                                    ? c.input.size()
                              : c.kind == Kind::reduce_scatter || c.kind == Kind::broadcast ? c.values.size()
                                                                                            : 0;
    return std::max<std::size_t>(1, ceil_div(bytes, capacity(c)));
  }

  /// The bytes of an array of `size` that go in turn `step`.
  ByteRange piece(std::size_t size, std::size_t step, std::size_t bytes) const {
    const std::size_t first = std::min(size, step * bytes);
    return {first, std::min(bytes, size - first)};
  }

  void lay_out(const Collective& c) {
    const std::size_t most = capacity(c);
    switch (c.kind) {
      case Kind::all_reduce:
        if (c.values.size() <= short_slot_bytes) return give(c.values, next_slot());
        if (step_ > 0) reduce_shard(c, step_ - 1);
        return lay_out_for_sum(c, step_);
      case Kind::reduce_scatter: {
        const auto [first, count] = piece(c.values.size(), step_, most);
        for (const int other : group_.others()) {
          const auto to = static_cast<std::size_t>(other);
          give(c.input.subspan(to * c.values.size() + first, count), next_slot() + to * most);
        }
        return;
      }
      case Kind::all_gather: {
        const auto [first, count] = piece(c.input.size(), step_, most);
        std::byte* const mine = c.values.data() + own() * c.input.size() + first;
        give(c.input.subspan(first, count), next_slot());
        if (mine != c.input.data() + first) fetch(c.input.subspan(first, count), mine);
        return;
      }
      case Kind::broadcast:
        if (const auto [first, count] = piece(c.values.size(), step_, most); group_.rank == c.root)
          give(c.values.subspan(first, count), next_slot());
        return;
      case Kind::all_to_all:
        return lay_out_stream(c);
      default:
        must(c.kind == Kind::barrier, "a collective of private memory");
    }
  }

  void take(const Collective& c) {
    const std::size_t most = capacity(c);
    switch (c.kind) {
      case Kind::all_reduce:
        if (c.values.size() > short_slot_bytes) return fetch_sums(c);
        for (std::size_t r = 0; r < members(); ++r) sources_[r] = slot(static_cast<int>(r), turn_);
        return combine(c.how, c.values.data(), nullptr, c.values.size(), c.type);
      case Kind::reduce_scatter: {
        const auto [first, count] = piece(c.values.size(), step_, most);
        for (std::size_t r = 0; r < members(); ++r) sources_[r] = slot(static_cast<int>(r), turn_) + own() * most;
        sources_[own()] = c.input.data() + own() * c.values.size() + first;
        return combine(Combine::sum, c.values.data() + first, nullptr, count, c.type);
      }
      case Kind::all_gather: {
        const auto [first, count] = piece(c.input.size(), step_, most);
        for (const int other : group_.others())
          fetch({slot(other, turn_), count},
                c.values.data() + static_cast<std::size_t>(other) * c.input.size() + first);
        return;
      }
      case Kind::broadcast:
        if (const auto [first, count] = piece(c.values.size(), step_, most); group_.rank != c.root)
          fetch({slot(c.root, turn_), count}, c.values.data() + first);
        return;
      case Kind::all_to_all:
        if (step_ == 0) learn_sizes(c);
        return take_streams(c);
      default:
        return;
    }
  }

  /// Combines sources_ into `out`, and also into `for_others` unless that is null.
  void combine(Combine how, std::byte* out, std::byte* for_others, std::size_t bytes, DType type) {
    const std::span stream(&for_others, for_others != nullptr ? 1 : 0);
    if (how == Combine::sum)
      return kernels::ordered_sum(sources_, std::span(&out, 1), stream, bytes / size_of(type), type);
    const std::array<std::byte*, 2> outs = {out, for_others};
    kernels::greatest(sources_, std::span(outs).first(1 + stream.size()), bytes / size_of(type));
  }

  // A long all_reduce. A slot holds the shards of one piece.
  std::span<std::byte> sum_piece(const Collective& c, std::size_t k) const {
    const auto [first, count] = piece(c.values.size(), k, slot_bytes);
    return c.values.subspan(first, count);
  }
  ByteRange shard(std::span<const std::byte> of_piece, int rank) const {
    return shard_of({0, of_piece.size()}, rank, group_.size(), 64);
  }
  /// Publishes a piece, except the own shard, which no other member adds.
  void lay_out_for_sum(const Collective& c, std::size_t k) {
    const auto values = sum_piece(c, k);
    const ByteRange mine = shard(values, group_.rank);
    give(values.first(mine.first), next_slot());
    give(values.subspan(mine.end()), next_slot() + mine.end());
  }
  /// Reduces the own shard of the piece of this turn, into `values` and into the slot from which the others fetch it.
  void reduce_shard(const Collective& c, std::size_t k) {
    const auto values = sum_piece(c, k);
    const ByteRange mine = shard(values, group_.rank);
    for (std::size_t r = 0; r < members(); ++r) sources_[r] = slot(static_cast<int>(r), turn_) + mine.first;
    sources_[own()] = values.data() + mine.first;
    combine(c.how, values.data() + mine.first, slot(group_.rank, turn_) + mine.first, mine.count, c.type);
  }
  void fetch_sums(const Collective& c) const {
    if (step_ == 0) return;
    const auto values = sum_piece(c, step_ - 1);
    for (const int other : group_.others()) {
      const ByteRange theirs = shard(values, other);
      fetch({slot(other, turn_ - 1) + theirs.first, theirs.count}, values.data() + theirs.first);
    }
  }

  /// The stream has the parts of `input` for the others, in the order of ranks.
  void lay_out_stream(const Collective& c) {
    const std::size_t before = sum_of(c.send_bytes.first(own())), mine = c.send_bytes[own()];
    if (step_ == 0) {
      std::memcpy(next_slot(), c.send_bytes.data(), c.send_bytes.size_bytes());
      if (mine > 0) fetch(c.input.subspan(before, mine), c.values.data() + sum_of(c.receive_bytes.first(own())));
    }
    const ByteRange now = piece(c.input.size() - mine, step_, capacity(c));
    std::byte* to = next_slot() + header_bytes();
    if (now.first < before) {
      const std::size_t count = std::min(now.count, before - now.first);
      give(c.input.subspan(now.first, count), to);
      to += count;
    }
    if (const std::size_t first = std::max(now.first, before); first < now.end())
      give(c.input.subspan(mine + first, now.end() - first), to);
  }

  void learn_sizes(const Collective& c) {
    std::size_t longest = 0;
    std::vector<std::size_t>& sizes = sizes_;
    sizes.resize(members());
    for (int r = 0; r < group_.size(); ++r) {
      std::memcpy(sizes.data(), slot(r, turn_), sizes.size() * sizeof(std::size_t));
      const auto from = static_cast<std::size_t>(r);
      if (sizes[own()] != c.receive_bytes[from])
        throw CommError(text(describe(group_, c.name), ": rank ", group_.world_ranks[from], " sends ", sizes[own()],
                             " bytes to rank ", group_.world_ranks[own()], ", which expects ", c.receive_bytes[from]));
      sizes[from] = 0;  // not in its stream
      streams_[from] = {{sum_of(std::span(sizes).first(own())), sizes[own()]}, sum_of(sizes)};
      longest = std::max(longest, streams_[from].bytes);
    }
    last_step_ = std::max<std::size_t>(1, ceil_div(longest, capacity(c))) - 1;
  }

  void take_streams(const Collective& c) const {
    for (const int other : group_.others()) {
      const auto from = static_cast<std::size_t>(other);
      const ByteRange mine = streams_[from].own, now = piece(streams_[from].bytes, step_, capacity(c));
      const std::size_t first = std::max(mine.first, now.first), end = std::min(mine.end(), now.end());
      if (first >= end) continue;
      std::byte* const to = c.values.data() + sum_of(c.receive_bytes.first(from)) + (first - mine.first);
      fetch({slot(other, turn_) + header_bytes() + (first - now.first), end - first}, to);
    }
  }

  const Communicator::State& group_;
  std::shared_ptr<const SharedMemory> memory_;
  CollectiveQueue waiting_;
  std::size_t step_ = 0, last_step_ = 0;  // turns of the oldest collective
  bool come_ = false;                     // to turn_, in this step
  std::size_t seen_ = 0;                  // others that have come to turn_
  std::uint64_t turn_ = 0, ticket_ = 0;
  std::vector<const std::byte*> sources_;
  std::vector<Stream> streams_;
  std::vector<std::size_t> sizes_;
};

}  // namespace

std::size_t slots_bytes(int members) { return static_cast<std::size_t>(members) * (sizeof(Line) + slots * slot_bytes); }

std::size_t message_bytes_of_member() { return slots_bytes(1); }

std::unique_ptr<Exchange> exchange_in_slots(const Communicator::State& group,
                                            std::shared_ptr<const SharedMemory> memory) {
  return std::make_unique<InSlots>(group, std::move(memory));
}

std::unique_ptr<Exchange> exchange_in_slots(Communicator::State& group) {
  const std::size_t bytes = slots_bytes(group.size());
  const Communicator communicator(group.shared_from_this());
  SharedMemory own;
  std::optional<SharedMemory> memory;
  std::array<int, 2> descriptor = {0, -1};  // process and number
  if (group.rank == 0) {
    own = SharedMemory::create(bytes);
    descriptor = {group.peer(0).pid, own.descriptor()};
  }
  communicator.broadcast(std::as_writable_bytes(std::span(descriptor)), 0, "shared memory of the group");
  if (group.rank != 0) memory = SharedMemory::open(descriptor[0], descriptor[1], 0, bytes);
  float missing = group.rank == 0 || memory ? 0.F : 1.F;
  communicator.all_reduce({&missing, 1}, "shared memory of the group");
  own.close_descriptor();
  if (missing != 0) return nullptr;
  return exchange_in_slots(group,
                           std::make_shared<const SharedMemory>(group.rank == 0 ? std::move(own) : std::move(*memory)));
}

}  // namespace tessera::comm
