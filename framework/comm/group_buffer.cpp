#include "framework/comm/group_buffer.h"

#include <cstring>
#include <deque>
#include <vector>

#include "framework/comm/group.h"
#include "framework/comm/shared_memory.h"

namespace tessera {

class GroupBuffer::State {
 public:
  struct Begun {
    ByteRange range;
    bool sum, everywhere;
    std::string who;
  };

  State(Communicator group_, std::size_t bytes_)
      : group(std::move(group_)), bytes(bytes_), memory(SharedMemory::create(std::max<std::size_t>(bytes_, 1))) {}

  Communicator group;
  std::size_t bytes;
  SharedMemory memory;
  std::deque<Begun> begun;
};

GroupBuffer::GroupBuffer(const Communicator& group, std::size_t bytes)
    : state_(std::make_unique<State>(group, bytes)) {}
GroupBuffer::~GroupBuffer() = default;
GroupBuffer::GroupBuffer(GroupBuffer&&) noexcept = default;
GroupBuffer& GroupBuffer::operator=(GroupBuffer&&) noexcept = default;

std::span<std::byte> GroupBuffer::bytes() const { return {state_->memory.data(), state_->bytes}; }
std::span<float> GroupBuffer::floats() const {
  return {reinterpret_cast<float*>(state_->memory.data()), state_->bytes / sizeof(float)};
}

ByteRange GroupBuffer::share(ByteRange range, int rank, int size) {
  const Cut own = cut(range.count, rank, size, grain);
  return {range.first + own.first, own.size()};
}

void GroupBuffer::begin_sum(ByteRange range, bool everywhere, std::string_view who) {
  state_->begun.push_back({range, true, everywhere, std::string(who)});
}
void GroupBuffer::begin_gather(ByteRange range, std::string_view who) {
  state_->begun.push_back({range, false, true, std::string(who)});
}
void GroupBuffer::progress() {}

void GroupBuffer::finish() {
  const Communicator& group = state_->group;
  for (; !state_->begun.empty(); state_->begun.pop_front()) {
    if (group.size() == 1) continue;
    const auto& one = state_->begun.front();
    const auto values = bytes().subspan(one.range.first, one.range.count);
    if (one.sum) {
      group.all_reduce(values, DType::float32, one.who);
      continue;
    }
    std::size_t longest = 0;
    for (int r = 0; r < group.size(); ++r) longest = std::max(longest, share(one.range, r, group.size()).count);
    const auto members = static_cast<std::size_t>(group.size());
    std::vector<std::byte> mine(longest), all(longest * members);
    const ByteRange own = share(one.range, group.rank(), group.size());
    if (own.count > 0) std::memcpy(mine.data(), bytes().data() + own.first, own.count);
    group.all_gather(mine, all, one.who);
    for (int r = 0; r < group.size(); ++r) {
      const ByteRange theirs = share(one.range, r, group.size());
      if (theirs.count > 0)
        std::memcpy(bytes().data() + theirs.first, all.data() + static_cast<std::size_t>(r) * longest, theirs.count);
    }
  }
}

}  // namespace tessera
