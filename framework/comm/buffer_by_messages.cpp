#include <deque>

#include "framework/comm/buffer_exchange.h"
#include "framework/comm/message_pieces.h"
#include "framework/comm/shared_memory.h"

namespace tessera {
namespace {

class ByMessages final : public BufferExchange {
 public:
  ByMessages(Communicator::State& group, std::size_t bytes)
      : group_(group),
        bytes_(bytes),
        memory_(SharedMemory::create(bytes + GroupBuffer::grain)),
        pieces_(group, first_buffer_tag + 2 * group.buffers++) {
    memory_.close_descriptor();
  }

  std::span<std::byte> bytes() const override { return {memory_.data(), bytes_}; }

  void begin(Begun one) override {
    pieces_.add({.values = bytes().subspan(one.range.first, one.range.count),
                 .type = DType::float32,
                 .how = Combine::sum,
                 .sum = one.sum,
                 .everywhere = one.everywhere,
                 .grain = GroupBuffer::grain});
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
