#include "framework/training/step/stage_channel.h"

namespace tessera::training {
namespace {

class TransferMessage final : public StageMessage {
 public:
  explicit TransferMessage(comm::Transfer transfer) : transfer_(std::move(transfer)) {}
  bool done() override { return transfer_.done(); }
  void wait() override { transfer_.wait(); }

 private:
  comm::Transfer transfer_;
};

}  // namespace

std::unique_ptr<StageMessage> CommunicatorChannel::send(std::span<const std::byte> values, std::int64_t to_stage,
                                                        int tag, std::string_view who) {
  return std::make_unique<TransferMessage>(stages_.send(values, static_cast<int>(to_stage), tag, who));
}

std::unique_ptr<StageMessage> CommunicatorChannel::receive(std::span<std::byte> values, std::int64_t from_stage,
                                                           int tag, std::string_view who) {
  return std::make_unique<TransferMessage>(stages_.receive(values, static_cast<int>(from_stage), tag, who));
}

}  // namespace tessera::training
