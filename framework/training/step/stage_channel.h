#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "framework/comm/communicator.h"

namespace tessera::training {

/// A message in flight between pipeline stages.
class StageMessage {
 public:
  virtual ~StageMessage() = default;
  virtual bool done() = 0;  ///< whether it has completed; does not block
  virtual void wait() = 0;  ///< blocks; throws CommError after the time-out
};

/// Sends and receives activations and gradients between pipeline stages.
class StageChannel {
 public:
  virtual ~StageChannel() = default;
  /// Starts to send `values` to a stage; does not block. `values` must stay valid and unchanged until the message is
  /// done. A receive matches the send with the same tag (0 to 32767) from that stage, in order; the sizes must be
  /// equal. `who` names the values in error messages.
  virtual std::unique_ptr<StageMessage> send(std::span<const std::byte> values, std::int64_t to_stage, int tag,
                                             std::string_view who) = 0;
  /// Starts to receive into `values` from a stage; otherwise as send().
  virtual std::unique_ptr<StageMessage> receive(std::span<std::byte> values, std::int64_t from_stage, int tag,
                                                std::string_view who) = 0;
};

/// The channel of a run: messages within a pipeline group, in which the rank is the stage.
class CommunicatorChannel final : public StageChannel {
 public:
  explicit CommunicatorChannel(comm::Communicator stages) : stages_(std::move(stages)) {}
  std::unique_ptr<StageMessage> send(std::span<const std::byte> values, std::int64_t to_stage, int tag,
                                     std::string_view who) override;
  std::unique_ptr<StageMessage> receive(std::span<std::byte> values, std::int64_t from_stage, int tag,
                                        std::string_view who) override;

 private:
  comm::Communicator stages_;
};

}  // namespace tessera::training
