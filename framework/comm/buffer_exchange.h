#pragma once

#include <memory>
#include <string>

#include "framework/comm/group.h"
#include "framework/comm/group_buffer.h"

namespace tessera {

/// A transport of GroupBuffer for a group of at least two ranks: sums and gathers ranges of the members' arrays. The
/// members call begin() in the same order. Internal to this component.
class BufferExchange {
 public:
  /// An operation that was begun.
  struct Begun {
    ByteRange range;
    bool sum, everywhere;  ///< sum or gather; whether the whole range receives the sums, or only the own shard
    std::size_t element_bytes;
    std::uint64_t sequence;  ///< number of the operation in the group
    std::string who;
  };
  virtual ~BufferExchange() = default;
  virtual std::span<std::byte> bytes() const = 0;  ///< this rank's array
  virtual void begin(Begun begun) = 0;             ///< does not block
  virtual void progress() = 0;                     ///< does what is possible without blocking
  virtual void finish() = 0;                       ///< blocks until everything begun is done; throws CommError
};

/// The two transports. Collective over the group, with the same `bytes`. `group` must outlive the result.
std::unique_ptr<BufferExchange> buffer_by_messages(Communicator::State& group, std::size_t bytes);
/// Null, on all members alike, if some member cannot map the shared memory.
std::unique_ptr<BufferExchange> buffer_in_shared_memory(Communicator::State& group, std::size_t bytes);

}  // namespace tessera
