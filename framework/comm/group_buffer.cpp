#include "framework/comm/group_buffer.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <set>

#include "framework/base/clock.h"
#include "framework/comm/group_state.h"
#include "framework/comm/operation.h"

namespace tessera::comm {

static_assert(GroupBuffer::header_bytes == array_header_bytes);

namespace {

void finish_all(const Communicator::State& group, Exchange& exchange) {
  while (!exchange.advance()) {
    const OperationName name = exchange.oldest();
    const Operation operation(group, name);
    operation.wait([&] { return exchange.advance() || exchange.oldest().sequence != name.sequence; },
                   [&] { return exchange.moved(); }, [&] { return exchange.missing(); });
  }
}

/// The piece size with which the slowest member sums the first part of the array fastest. It depends on the network, so
/// it is measured. The values are zeros and stay so. Takes some tens of milliseconds inside a host, so only for arrays
/// whose sums take longer. The maximum over the members makes all of them choose the same size.
std::size_t measured_piece(Communicator::State& group, std::span<std::byte> array, int tag) {
  constexpr std::size_t tried_bytes = 24 << 20, least_bytes = 100 << 20;
  constexpr std::array<std::size_t, 3> sizes = {1 << 20, 4 << 20, 16 << 20};
  if (array.size() < least_bytes) return default_piece_bytes;
  std::array<float, sizes.size()> seconds{};
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    for (int round = 0; round < 2; ++round) {  // the first one is the warm-up
      const auto exchange = exchange_by_messages(group, tag, sizes[i]);
      const Stopwatch watch;
      exchange->begin({.kind = Collective::Kind::all_reduce,
                       .values = array.first(tried_bytes),
                       .name = {"all_reduce", ++group.sequence, tried_bytes, "size of messages"}});
      finish_all(group, *exchange);
      seconds[i] = static_cast<float>(watch.seconds());
    }
  }
  Communicator(group.shared_from_this()).all_reduce_max(seconds, "size of messages");
  return sizes[static_cast<std::size_t>(std::min_element(seconds.begin(), seconds.end()) - seconds.begin())];
}

}  // namespace

class GroupBuffer::State {
 public:
  State(std::shared_ptr<Communicator::State> members, SharedMemory all, bool zeros)
      : group(std::move(members)), size(all.size() - array_header_bytes), memory(std::move(all)) {
    std::memset(memory.data(), 0, array_header_bytes);
    if (group->size() > 1) open(zeros);
    memory.close_descriptor();
  }

  std::span<std::byte> values() const { return {memory.data() + array_header_bytes, size}; }

  void begin(Collective::Kind kind, std::string_view name, ByteRange range, std::size_t element_bytes,
             std::string_view who) {
    const auto multiple = grain_elements * element_bytes;
    if (range.first % multiple != 0 || range.count % element_bytes != 0 || range.first > size ||
        range.count > size - range.first)
      throw ShapeError(text("buffer of group ", group->name, ": range of ", range.count, " bytes from byte ",
                            range.first, " of ", size, ", called by '", who, "'; ranges begin at multiples of ",
                            multiple, " and hold whole elements"));
    if (!exchange) return;
    exchange->begin({.kind = kind,
                     .values = values().subspan(range.first, range.count),
                     .grain = multiple,
                     .name = {name, ++group->sequence, range.count, kept(who)}});
  }

  std::shared_ptr<Communicator::State> group;
  std::size_t size;
  SharedMemory memory;
  std::unique_ptr<Exchange> exchange;  // null for a group of one rank

 private:
  void open(bool zeros) {
    const std::uint64_t own = size;
    std::vector<std::uint64_t> all(static_cast<std::size_t>(group->size()));
    Communicator(group).all_gather(std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(all)),
                                   "sizes of a buffer");
    for (const std::uint64_t other : all)
      if (other != own)
        throw CommError(text("buffer of group ", group->name, ": rank ", group->world->rank, " asks for ", own,
                             " bytes, another member for ", other));
    if (group->shares_memory) exchange = exchange_in_arrays(*group, memory);
    if (exchange) return;
    const int tag = first_buffer_tag + tags_of_an_exchange * group->buffers++;
    const auto piece = zeros ? measured_piece(*group, values(), tag) : default_piece_bytes;
    exchange = exchange_by_messages(*group, tag, piece);
  }

  /// The same name in memory that stays valid. There are few: nothing is allocated in a steady state.
  std::string_view kept(std::string_view who) {
    const auto known = callers_.find(who);
    return known != callers_.end() ? *known : *callers_.emplace(who).first;
  }

  std::set<std::string, std::less<>> callers_;
};

GroupBuffer::GroupBuffer(const Communicator& group, std::size_t bytes)
    : state_(std::make_unique<State>(group.state_, SharedMemory::create(header_bytes + bytes), true)) {}
GroupBuffer::GroupBuffer(const Communicator& group, SharedMemory memory, bool zeros)
    : state_(std::make_unique<State>(group.state_, std::move(memory), zeros)) {}
GroupBuffer::~GroupBuffer() = default;
GroupBuffer::GroupBuffer(GroupBuffer&&) noexcept = default;
GroupBuffer& GroupBuffer::operator=(GroupBuffer&&) noexcept = default;

std::span<std::byte> GroupBuffer::bytes() const { return state_->values(); }
std::span<float> GroupBuffer::floats() const {
  return {reinterpret_cast<float*>(bytes().data()), state_->size / sizeof(float)};
}

ByteRange GroupBuffer::share(ByteRange range, int rank, int size, std::size_t element_bytes) {
  return shard_of(range, rank, size, grain_elements * element_bytes);
}

void GroupBuffer::begin_sum(ByteRange range, bool everywhere, std::string_view who) {
  state_->begin(everywhere ? Collective::Kind::all_reduce : Collective::Kind::sum_shards, "sum of a buffer", range,
                sizeof(float), who);
}
void GroupBuffer::begin_gather(ByteRange range, std::size_t element_bytes, std::string_view who) {
  state_->begin(Collective::Kind::gather_shards, "gather of a buffer", range, element_bytes, who);
}
void GroupBuffer::progress() {
  if (state_->exchange) state_->exchange->advance();
}
void GroupBuffer::finish() {
  if (state_->exchange) finish_all(*state_->group, *state_->exchange);
}

}  // namespace tessera::comm
