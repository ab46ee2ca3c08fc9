#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <deque>
#include <vector>

#include "framework/comm/buffer_exchange.h"
#include "framework/comm/shared_memory.h"
#include "framework/kernels/ordered_sum.h"

namespace tessera {
namespace {

// A page before each member's array: the array stays page-aligned, and counters share no cache line with data.
constexpr std::size_t head_bytes = 4096;

/// The counters of a member; only it writes them, all members read them.
struct Head {
  alignas(64) std::atomic<std::uint64_t> begun;     // operations that its array is ready for
  alignas(64) std::atomic<std::uint64_t> finished;  // operations whose own shard it has done
};

class InSharedMemory final : public BufferExchange {
 public:
  InSharedMemory(Communicator::State& group, std::size_t bytes, std::vector<SharedMemory> arrays)
      : group_(group), bytes_(bytes), arrays_(std::move(arrays)), sources_(arrays_.size()) {}

  std::span<std::byte> bytes() const override { return {array(group_.rank), bytes_}; }

  void begin(Begun one) override {
    waiting_.push_back(std::move(one));
    own().begun.store(++begun_, std::memory_order_release);
  }

  void progress() override {
    while (!waiting_.empty() && ready()) do_share();
  }

  void finish() override {
    while (!waiting_.empty()) {
      const Begun& one = waiting_.front();
      const Operation operation(group_, one.sum ? "sum of a buffer" : "gather of a buffer", one.sequence,
                                one.range.count, one.who);
      operation.wait([this] { return ready(); }, [this] { return behind(&Head::begun, finished_ + 1); });
      do_share();
    }
    const Operation operation(group_, "end of sums and gathers", last_sequence_, 0, last_who_);
    operation.wait([this] { return behind(&Head::finished, finished_).empty(); },
                   [this] { return behind(&Head::finished, finished_); });
  }

 private:
  Head& head(int member) const { return *reinterpret_cast<Head*>(arrays_[static_cast<std::size_t>(member)].data()); }
  Head& own() const { return head(group_.rank); }
  std::byte* array(int member) const { return arrays_[static_cast<std::size_t>(member)].data() + head_bytes; }

  /// Members whose counter is below `count`.
  Missing behind(std::atomic<std::uint64_t> Head::*counter, std::uint64_t count) const {
    Missing members;
    for (int r = 0; r < group_.size(); ++r)
      if ((head(r).*counter).load(std::memory_order_acquire) < count) members.push_back(r);
    return members;
  }

  /// Whether all members have begun the oldest operation.
  bool ready() const {
    for (int r = 0; r < group_.size(); ++r)
      if (head(r).begun.load(std::memory_order_acquire) <= finished_) return false;
    return true;
  }

  void do_share() {
    const Begun& one = waiting_.front();
    if (one.sum)
      sum(one);
    else
      gather(one);
    last_sequence_ = one.sequence;
    last_who_ = one.who;
    waiting_.pop_front();
    own().finished.store(++finished_, std::memory_order_release);
  }

  // Only the owner adds a shard, from all arrays in the order of ranks, and writes the result into the others' arrays:
  // each element is written by one member, so no lock is needed.
  void sum(const Begun& one) {
    const ByteRange share = GroupBuffer::share(one.range, group_.rank, group_.size());
    std::byte* const mine = array(group_.rank) + share.first;
    outs_.clear();
    for (int r = 0; r < group_.size(); ++r) {
      std::byte* const theirs = array(r) + share.first;
      sources_[static_cast<std::size_t>(r)] = theirs;
      if (one.everywhere && r != group_.rank) outs_.push_back(theirs);
    }
    ordered_sum(sources_, std::span(&mine, 1), outs_, share.count / sizeof(float), DType::float32);
  }

  void gather(const Begun& one) {
    for (const int other : group_.others()) {
      const ByteRange theirs = GroupBuffer::share(one.range, other, group_.size(), one.element_bytes);
      if (theirs.count > 0) std::memcpy(array(group_.rank) + theirs.first, array(other) + theirs.first, theirs.count);
    }
  }

  Communicator::State& group_;
  std::size_t bytes_;
  std::vector<SharedMemory> arrays_;
  std::deque<Begun> waiting_;
  std::uint64_t begun_ = 0, finished_ = 0, last_sequence_ = 0;
  std::string last_who_;
  std::vector<const std::byte*> sources_;
  std::vector<std::byte*> outs_;  // of the others
};

}  // namespace

std::unique_ptr<BufferExchange> buffer_in_shared_memory(Communicator::State& group, std::size_t bytes) {
  const Operation operation(group, "shared buffer", ++group.sequence, bytes, "arrays of all members");
  const auto members = static_cast<std::size_t>(group.size()), rank = static_cast<std::size_t>(group.rank);
  std::vector<SharedMemory> arrays(members);
  arrays[rank] = SharedMemory::create(head_bytes + bytes);
  struct Place {
    int pid, descriptor;
  };
  std::vector<Place> places(members);
  places[rank] = {group.run->peers[static_cast<std::size_t>(group.run->rank)].pid, arrays[rank].descriptor()};
  group.exchange->all_gather(std::as_bytes(std::span(&places[rank], 1)), std::as_writable_bytes(std::span(places)),
                             operation);
  // All members must decide alike: one that cannot map the memory of another makes all use messages.
  float missing = 0;
  for (const int other : group.others()) {
    const auto r = static_cast<std::size_t>(other);
    auto theirs = SharedMemory::open(places[r].pid, places[r].descriptor, head_bytes + bytes);
    if (theirs)
      arrays[r] = std::move(*theirs);
    else
      missing = 1;
  }
  group.exchange->all_reduce(std::as_writable_bytes(std::span(&missing, 1)), DType::float32, Combine::sum, operation);
  for (SharedMemory& array : arrays) array.close_descriptor();
  if (missing != 0) return nullptr;
  return std::make_unique<InSharedMemory>(group, bytes, std::move(arrays));
}

}  // namespace tessera
