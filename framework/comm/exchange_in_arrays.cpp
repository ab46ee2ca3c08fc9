#include <atomic>
#include <cstring>
#include <vector>

#include "framework/comm/byte_range.h"
#include "framework/comm/exchange.h"
#include "framework/comm/group_state.h"
#include "framework/kernels/ordered_sum.h"

namespace tessera::comm {
namespace {

/// The counters of a member; only it writes them, all members read them.
struct Counters {
  alignas(64) std::atomic<std::uint64_t> begun;     // collectives that its array is ready for
  alignas(64) std::atomic<std::uint64_t> finished;  // collectives whose own shard it has done
};
static_assert(sizeof(Counters) <= array_header_bytes);

class InArrays final : public Exchange {
 public:
  /// `starts`: of the memory of each member; `mappings`: what keeps it mapped, as far as the caller does not.
  InArrays(const Communicator::State& group, std::vector<std::byte*> starts, std::vector<SharedMemory> mappings)
      : group_(group), mappings_(std::move(mappings)), starts_(std::move(starts)), sources_(starts_.size()) {}

  void begin(const Collective& collective) override {
    using enum Collective::Kind;
    must(collective.kind == all_reduce || collective.kind == sum_shards || collective.kind == gather_shards,
         "a collective of arrays that are shared");
    waiting_.push(collective);
    counters(group_.rank).begun.store(++begun_, std::memory_order_release);
  }

  bool advance() override {
    while (!waiting_.empty()) {
      if (!have_all(&Counters::begun, finished_ + 1)) return false;
      do_shard(waiting_.front());
      last_ = waiting_.front().name;
      waiting_.pop();
      counters(group_.rank).finished.store(++finished_, std::memory_order_release);
    }
    return have_all(&Counters::finished, finished_);
  }

  std::uint64_t moved() const override { return finished_; }
  Missing missing() const override {
    return waiting_.empty() ? behind(&Counters::finished, finished_) : behind(&Counters::begun, finished_ + 1);
  }
  const OperationName& oldest() const override { return waiting_.empty() ? last_ : waiting_.front().name; }
  void abandon() noexcept override { waiting_.clear(); }

 private:
  using Counter = std::atomic<std::uint64_t> Counters::*;
  Counters& counters(int member) const {
    return *reinterpret_cast<Counters*>(starts_[static_cast<std::size_t>(member)]);
  }
  std::byte* array(int member) const { return starts_[static_cast<std::size_t>(member)] + array_header_bytes; }
  bool is_behind(int member, Counter counter, std::uint64_t count) const {
    return (counters(member).*counter).load(std::memory_order_acquire) < count;
  }
  bool have_all(Counter counter, std::uint64_t count) const {
    for (int r = 0; r < group_.size(); ++r)
      if (is_behind(r, counter, count)) return false;
    return true;
  }
  Missing behind(Counter counter, std::uint64_t count) const {
    Missing members;
    for (int r = 0; r < group_.size(); ++r)
      if (is_behind(r, counter, count)) members.push_back(r);
    return members;
  }

  /// Where the values are in every member's array.
  ByteRange range(const Collective& c) const {
    return {static_cast<std::size_t>(c.values.data() - array(group_.rank)), c.values.size()};
  }

  void do_shard(const Collective& c) {
    if (c.kind == Collective::Kind::gather_shards)
      gather(c);
    else
      sum(c);
  }

  // Only the owner adds a shard, from all arrays in the order of ranks, and writes the result into the others' arrays:
  // each element is written by one member, so no lock is needed.
  void sum(const Collective& c) {
    const ByteRange shard = shard_of(range(c), group_.rank, group_.size(), c.grain);
    std::byte* const mine = array(group_.rank) + shard.first;
    outs_.clear();
    for (int r = 0; r < group_.size(); ++r) {
      std::byte* const theirs = array(r) + shard.first;
      sources_[static_cast<std::size_t>(r)] = theirs;
      if (c.kind == Collective::Kind::all_reduce && r != group_.rank) outs_.push_back(theirs);
    }
    kernels::ordered_sum(sources_, std::span(&mine, 1), outs_, shard.count / size_of(c.type), c.type);
  }

  void gather(const Collective& c) {
    for (const int other : group_.others()) {
      const ByteRange theirs = shard_of(range(c), other, group_.size(), c.grain);
      if (theirs.count > 0) std::memcpy(array(group_.rank) + theirs.first, array(other) + theirs.first, theirs.count);
    }
  }

  const Communicator::State& group_;
  std::vector<SharedMemory> mappings_;
  std::vector<std::byte*> starts_;
  CollectiveQueue waiting_;
  std::uint64_t begun_ = 0, finished_ = 0;
  OperationName last_;
  std::vector<const std::byte*> sources_;
  std::vector<std::byte*> outs_;  // of the others
};

}  // namespace

std::unique_ptr<Exchange> exchange_in_arrays(const Communicator::State& group, std::vector<std::byte*> memory) {
  return std::make_unique<InArrays>(group, std::move(memory), std::vector<SharedMemory>());
}

std::unique_ptr<Exchange> exchange_in_arrays(Communicator::State& group, SharedMemory& own) {
  struct Place {
    std::uint64_t offset;
    int process, descriptor;
  };
  const auto members = static_cast<std::size_t>(group.size());
  const Place mine = {own.offset(), group.peer(group.rank).pid, own.descriptor()};
  std::vector<Place> all(members);
  const Communicator communicator(group.shared_from_this());
  communicator.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)), "shared arrays");
  // All members must decide alike: one that cannot map the memory of another makes all use messages.
  std::vector<SharedMemory> others(members);
  float missing = 0;
  for (const int other : group.others()) {
    const auto r = static_cast<std::size_t>(other);
    if (auto theirs = SharedMemory::open(all[r].process, all[r].descriptor, all[r].offset, own.size()))
      others[r] = std::move(*theirs);
    else
      missing = 1;
  }
  communicator.all_reduce({&missing, 1}, "shared arrays");
  own.close_descriptor();
  if (missing != 0) return nullptr;
  std::vector<std::byte*> starts;
  for (const SharedMemory& theirs : others) starts.push_back(theirs.data());
  starts[static_cast<std::size_t>(group.rank)] = own.data();
  return std::make_unique<InArrays>(group, std::move(starts), std::move(others));
}

}  // namespace tessera::comm
