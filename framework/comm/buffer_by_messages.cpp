#include <algorithm>
#include <array>

#include "framework/base/clock.h"
#include "framework/comm/buffer_exchange.h"
#include "framework/comm/message_pieces.h"
#include "framework/comm/shared_memory.h"

namespace tessera {
namespace {

/// The piece size with which the slowest member sums the first part of the array fastest. It depends on the network, so
/// it is measured. The values are zeros and stay so. Takes some tens of milliseconds inside a host, so only for arrays
/// whose sums take longer. The maximum over the members makes all of them choose the same size.
std::size_t measured_piece(Communicator::State& group, std::span<std::byte> array, int tag) {
  constexpr std::size_t tried_bytes = 24 << 20, least_bytes = 100 << 20;
  constexpr std::array<std::size_t, 3> sizes = {1 << 20, 4 << 20, 16 << 20};
  if (array.size() < least_bytes) return MessagePieces::usual_piece;
  const Operation operation(group, "size of messages", ++group.sequence, tried_bytes, "buffer");
  std::array<float, sizes.size()> seconds{};
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    for (int round = 0; round < 2; ++round) {  // the first one is the warm-up
      MessagePieces pieces(group, tag, sizes[i]);
      pieces.add({.values = array.first(tried_bytes)});
      const Stopwatch watch;
      operation.wait([&] { return pieces.advance(); }, [&] { return pieces.missing(); });
      seconds[i] = static_cast<float>(watch.seconds());
    }
  }
  group.exchange->all_reduce(std::as_writable_bytes(std::span(seconds)), DType::float32, Combine::greatest, operation);
  return sizes[static_cast<std::size_t>(std::min_element(seconds.begin(), seconds.end()) - seconds.begin())];
}

class ByMessages final : public BufferExchange {
 public:
  ByMessages(Communicator::State& group, std::size_t bytes)
      : group_(group),
        bytes_(bytes),
        memory_(SharedMemory::create(bytes + GroupBuffer::grain)),
        pieces_(group, first_buffer_tag + 2 * group.buffers,
                measured_piece(group, {memory_.data(), bytes}, first_buffer_tag + 2 * group.buffers)) {
    ++group.buffers;
    memory_.close_descriptor();
  }

  std::span<std::byte> bytes() const override { return {memory_.data(), bytes_}; }

  // An operation is not recorded when it begins but only when finish() waits: a rank that computes is not "inside" it.
  void begin(Begun one) override {
    pieces_.add({.values = bytes().subspan(one.range.first, one.range.count),
                 .type = DType::float32,
                 .how = Combine::sum,
                 .sum = one.sum,
                 .everywhere = one.everywhere,
                 .grain = GroupBuffer::grain_elements * one.element_bytes});
    bytes_begun_ += one.range.count;
    last_ = std::move(one);
    pieces_.advance();
  }

  void progress() override { pieces_.advance(); }

  void finish() override {
    if (pieces_.advance()) return;
    const Operation operation(group_, "sums and gathers of a buffer", last_.sequence, bytes_begun_, last_.who);
    operation.wait([this] { return pieces_.advance(); }, [this] { return pieces_.missing(); });
    bytes_begun_ = 0;
  }

 private:
  Communicator::State& group_;
  std::size_t bytes_, bytes_begun_ = 0;
  SharedMemory memory_;
  MessagePieces pieces_;
  Begun last_ = {};
};

}  // namespace

std::unique_ptr<BufferExchange> buffer_by_messages(Communicator::State& group, std::size_t bytes) {
  return std::make_unique<ByMessages>(group, bytes);
}

}  // namespace tessera
