#include "framework/comm/group_buffer.h"

#include "framework/comm/buffer_exchange.h"
#include "framework/comm/shared_memory.h"

namespace tessera {

class GroupBuffer::State {
 public:
  State(std::shared_ptr<Communicator::State> members, std::size_t bytes) : group(std::move(members)), size(bytes) {
    if (group->size() == 1) {
      memory = SharedMemory::create(bytes + grain);
      memory.close_descriptor();
      return;
    }
    const std::uint64_t own = bytes;
    std::vector<std::uint64_t> all(static_cast<std::size_t>(group->size()));
    Communicator(group).all_gather(std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(all)),
                                   "sizes of a buffer");
    for (const std::uint64_t other : all)
      if (other != own)
        throw CommError(text("buffer of group ", group->name, ": rank ", group->run->rank, " asks for ", own,
                             " bytes, another member for ", other));
    if (group->shares_memory) exchange = buffer_in_shared_memory(*group, bytes);
    if (!exchange) exchange = buffer_by_messages(*group, bytes);
  }

  void begin(ByteRange range, bool sum, bool everywhere, std::size_t element_bytes, std::string_view who) const {
    const auto multiple = grain_elements * element_bytes;
    if (range.first % multiple != 0 || range.count % element_bytes != 0 || range.first > size ||
        range.count > size - range.first)
      throw ShapeError(text("buffer of group ", group->name, ": range of ", range.count, " bytes from byte ",
                            range.first, " of ", size, ", asked by '", who, "'; ranges begin at multiples of ",
                            multiple, " and hold whole elements"));
    if (exchange) exchange->begin({range, sum, everywhere, element_bytes, ++group->sequence, std::string(who)});
  }

  std::shared_ptr<Communicator::State> group;
  std::size_t size;
  SharedMemory memory;  // of a group of one rank
  std::unique_ptr<BufferExchange> exchange;
};

GroupBuffer::GroupBuffer(const Communicator& group, std::size_t bytes)
    : state_(std::make_unique<State>(group.state_, bytes)) {}
GroupBuffer::~GroupBuffer() = default;
GroupBuffer::GroupBuffer(GroupBuffer&&) noexcept = default;
GroupBuffer& GroupBuffer::operator=(GroupBuffer&&) noexcept = default;

std::span<std::byte> GroupBuffer::bytes() const {
  return state_->exchange ? state_->exchange->bytes() : std::span(state_->memory.data(), state_->size);
}
std::span<float> GroupBuffer::floats() const {
  return {reinterpret_cast<float*>(bytes().data()), state_->size / sizeof(float)};
}

ByteRange GroupBuffer::share(ByteRange range, int rank, int size, std::size_t element_bytes) {
  const Cut own = cut(range.count, rank, size, grain_elements * element_bytes);
  return {range.first + own.first, own.size()};
}

void GroupBuffer::begin_sum(ByteRange range, bool everywhere, std::string_view who) {
  state_->begin(range, true, everywhere, sizeof(float), who);
}
void GroupBuffer::begin_gather(ByteRange range, std::size_t element_bytes, std::string_view who) {
  state_->begin(range, false, true, element_bytes, who);
}
void GroupBuffer::progress() {
  if (state_->exchange) state_->exchange->progress();
}
void GroupBuffer::finish() {
  if (state_->exchange) state_->exchange->finish();
}

}  // namespace tessera
