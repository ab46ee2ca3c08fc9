#pragma once

#include <memory>
#include <string>

#include "framework/comm/group.h"
#include "framework/comm/group_buffer.h"

namespace tessera {

/// One way in which the members of a group, two at least, sum and gather ranges of their arrays. For this room only.
class BufferExchange {
 public:
  struct Begun {
    ByteRange range;
    bool sum, everywhere;
    std::size_t element_bytes;
    std::uint64_t sequence;  ///< of the group
    std::string who;
  };
  virtual ~BufferExchange() = default;
  virtual std::span<std::byte> bytes() const = 0;  ///< this member's array
  virtual void begin(Begun begun) = 0;
  virtual void progress() = 0;
  virtual void finish() = 0;
};

/// The two ways there are. Collective. `group` outlives them.
std::unique_ptr<BufferExchange> buffer_by_messages(Communicator::State& group, std::size_t bytes);
/// Nothing, on all members alike, when a member cannot map the memory.
std::unique_ptr<BufferExchange> buffer_in_shared_memory(Communicator::State& group, std::size_t bytes);

}  // namespace tessera
