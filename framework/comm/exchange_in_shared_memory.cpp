#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <vector>

#include "framework/comm/group.h"
#include "framework/comm/shared_memory.h"
#include "framework/kernels/ordered_sum.h"

namespace tessera {
namespace {

// Bytes of a member's slot. Large, so that few turns are needed: each may have to wait for a member that the operating
// system has descheduled.
constexpr std::size_t slot_bytes = 1 << 20;
constexpr std::size_t slots = 3;                 // turns whose values may be in use at the same time
constexpr std::size_t at_once = 16 << 10;        // bytes: up to here each member adds everything, in one turn
constexpr std::size_t least_streamed = 4 << 10;  // bytes: below, non-temporal stores do not pay

/// The counters of a member in the shared memory; only it writes them. Initially zeros. 128 bytes, because processors
/// prefetch pairs of cache lines.
struct alignas(128) Line {
  std::atomic<std::uint64_t> turn;                    // the newest turn it has come to
  std::array<std::atomic<std::uint64_t>, 2> tickets;  // which operation it is in, by parity of the turn
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

/// Members work in turns. Before a turn each may write its slot of that turn; meet() returns when all have come to it.
/// The content of a slot may be read until the reader comes to the next turn but one; so three slots, used cyclically,
/// need no further synchronization.
class InSharedMemory final : public Exchange {
 public:
  InSharedMemory(const Communicator::State& group, SharedMemory memory)
      : group_(group), memory_(std::move(memory)), sources_(static_cast<std::size_t>(group.size())) {}

  static std::size_t bytes(int members) {
    return static_cast<std::size_t>(members) * (sizeof(Line) + slots * slot_bytes);
  }

  void barrier(const Operation& operation) override { meet(operation); }

  void all_reduce(std::span<std::byte> values, DType type, Combine how, const Operation& operation) override {
    if (values.size() <= at_once) return reduce_at_once(values, type, how, operation);
    // A pipeline over pieces: in each turn, piece k is reduced by shards, piece k + 1 is laid out, and after the turn
    // the sums of piece k are fetched. Each member adds only its own shard, in the order of ranks.
    const std::size_t pieces = (values.size() + slot_bytes - 1) / slot_bytes;
    const auto piece = [&](std::size_t k) {
      return values.subspan(k * slot_bytes, std::min(slot_bytes, values.size() - k * slot_bytes));
    };
    lay_out(piece(0));
    meet(operation);
    for (std::size_t k = 0; k < pieces; ++k) {
      const std::uint64_t turn = turn_;
      reduce_share(piece(k), type, how);
      if (k + 1 < pieces) lay_out(piece(k + 1));
      meet(operation);
      fetch_shares(piece(k), turn);
    }
  }

  void reduce_scatter(std::span<const std::byte> all, std::span<std::byte> mine, DType type,
                      const Operation& operation) override {
    const std::size_t longest = slot_bytes / members() / 64 * 64;
    std::size_t first = 0;
    do {
      const std::size_t count = std::min(longest, mine.size() - first);
      for (const int other : group_.others()) {
        const auto to = static_cast<std::size_t>(other);
        give(all.subspan(to * mine.size() + first, count), next_slot(group_.rank) + to * longest);
      }
      meet(operation);
      const auto own = static_cast<std::size_t>(group_.rank);
      for (std::size_t r = 0; r < members(); ++r) sources_[r] = slot(static_cast<int>(r), turn_) + own * longest;
      sources_[own] = all.data() + own * mine.size() + first;
      combine(Combine::sum, mine.data() + first, nullptr, count, type);
      first += count;
    } while (first < mine.size());
  }

  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all, const Operation& operation) override {
    std::size_t first = 0;
    do {
      const std::size_t count = std::min(slot_bytes, mine.size() - first);
      give(mine.subspan(first, count), next_slot(group_.rank));
      const auto place = [&](int r) { return all.data() + static_cast<std::size_t>(r) * mine.size() + first; };
      if (place(group_.rank) != mine.data() + first) take(mine.subspan(first, count), place(group_.rank));
      meet(operation);
      for (const int other : group_.others()) take({slot(other, turn_), count}, place(other));
      first += count;
    } while (first < mine.size());
  }

  void broadcast(std::span<std::byte> values, int root, const Operation& operation) override {
    std::size_t first = 0;
    do {
      const auto piece = values.subspan(first, std::min(slot_bytes, values.size() - first));
      if (group_.rank == root) give(piece, next_slot(root));
      meet(operation);
      if (group_.rank != root) take({slot(root, turn_), piece.size()}, piece.data());
      first += piece.size();
    } while (first < values.size());
  }

 private:
  std::size_t members() const { return static_cast<std::size_t>(group_.size()); }
  Line& line(int member) const { return reinterpret_cast<Line*>(memory_.data())[member]; }
  std::byte* slot(int member, std::uint64_t turn) const {
    return memory_.data() + members() * sizeof(Line) +
           (turn % slots * members() + static_cast<std::size_t>(member)) * slot_bytes;
  }
  std::byte* next_slot(int member) const { return slot(member, turn_ + 1); }

  static void take(std::span<const std::byte> from, std::byte* to) { copy_bytes(from.data(), to, from.size()); }
  static void give(std::span<const std::byte> from, std::byte* to) {
    if (from.size() < least_streamed)
      copy_bytes(from.data(), to, from.size());
    else
      stream_bytes(from.data(), to, from.size());
  }

  /// Begins the next turn: returns when all members have come to it. Throws CommError if one of them is in another
  /// operation. The release store publishes the slot that was written before.
  void meet(const Operation& operation) {
    const std::uint64_t turn = ++turn_, ticket = operation.ticket();
    Line& own = line(group_.rank);
    own.tickets[turn % 2].store(ticket, std::memory_order_relaxed);
    own.turn.store(turn, std::memory_order_release);
    for (const int other : group_.others()) {
      const Line& theirs = line(other);
      operation.wait([&] { return theirs.turn.load(std::memory_order_acquire) >= turn; },
                     [&] { return not_come(turn); });
      if (theirs.tickets[turn % 2].load(std::memory_order_relaxed) != ticket) operation.disagree(other);
    }
  }

  Missing not_come(std::uint64_t turn) const {
    Missing ranks;
    for (int r = 0; r < group_.size(); ++r)
      if (line(r).turn.load(std::memory_order_relaxed) < turn) ranks.push_back(r);
    return ranks;
  }

  /// Combines sources_ into `out`, and also into `for_others` unless that is null.
  void combine(Combine how, std::byte* out, std::byte* for_others, std::size_t bytes, DType type) {
    const std::span stream(&for_others, for_others != nullptr ? 1 : 0);
    if (how == Combine::sum) return ordered_sum(sources_, std::span(&out, 1), stream, bytes / size_of(type), type);
    const std::array<std::byte*, 2> outs = {out, for_others};
    greatest(sources_, std::span(outs).first(1 + stream.size()), bytes / size_of(type));
  }

  void reduce_at_once(std::span<std::byte> values, DType type, Combine how, const Operation& operation) {
    give(values, next_slot(group_.rank));
    meet(operation);
    for (std::size_t r = 0; r < members(); ++r) sources_[r] = slot(static_cast<int>(r), turn_);
    combine(how, values.data(), nullptr, values.size(), type);
  }

  Cut share(std::span<const std::byte> piece, int rank) const { return cut(piece.size(), rank, group_.size(), 64); }

  /// Publishes a piece, except the own shard, which no other member adds.
  void lay_out(std::span<const std::byte> piece) {
    const Cut own = share(piece, group_.rank);
    give(piece.first(own.first), next_slot(group_.rank));
    give(piece.subspan(own.last), next_slot(group_.rank) + own.last);
  }

  /// Reduces the own shard of the piece of this turn, into `piece` and into the slot from which the others fetch it.
  void reduce_share(std::span<std::byte> piece, DType type, Combine how) {
    const Cut own = share(piece, group_.rank);
    for (std::size_t r = 0; r < members(); ++r) sources_[r] = slot(static_cast<int>(r), turn_) + own.first;
    sources_[static_cast<std::size_t>(group_.rank)] = piece.data() + own.first;
    combine(how, piece.data() + own.first, slot(group_.rank, turn_) + own.first, own.size(), type);
  }

  void fetch_shares(std::span<std::byte> piece, std::uint64_t turn) const {
    for (const int other : group_.others()) {
      const Cut theirs = share(piece, other);
      take({slot(other, turn) + theirs.first, theirs.size()}, piece.data() + theirs.first);
    }
  }

  const Communicator::State& group_;
  SharedMemory memory_;
  std::uint64_t turn_ = 0;
  std::vector<const std::byte*> sources_;
};

}  // namespace

std::unique_ptr<Exchange> exchange_in_shared_memory(const Communicator::State& group, Exchange& messages,
                                                    const Operation& operation) {
  const std::size_t bytes = InSharedMemory::bytes(group.size());
  SharedMemory own;
  std::optional<SharedMemory> memory;
  std::array<int, 2> place = {0, -1};  // process and descriptor
  if (group.rank == 0) {
    own = SharedMemory::create(bytes);
    place = {group.run->peers[static_cast<std::size_t>(group.run->rank)].pid, own.descriptor()};
  }
  messages.broadcast(std::as_writable_bytes(std::span(place)), 0, operation);
  if (group.rank != 0) memory = SharedMemory::open(place[0], place[1], bytes);
  float missing = group.rank == 0 || memory ? 0.F : 1.F;
  messages.all_reduce(std::as_writable_bytes(std::span(&missing, 1)), DType::float32, Combine::sum, operation);
  own.close_descriptor();
  if (missing != 0) return nullptr;
  return std::make_unique<InSharedMemory>(group, group.rank == 0 ? std::move(own) : std::move(*memory));
}

}  // namespace tessera
