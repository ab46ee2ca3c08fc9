#include "framework/checkpoint/filled_state.h"

#include "framework/base/mapped_pages.h"

namespace tessera::checkpoint {

std::span<const std::byte> FilledState::bytes(std::size_t index, std::size_t first, std::span<std::byte> buffer) const {
  if (index != filled_) {
    filled_ = ranges_.size();  // if it cannot be filled, it is in memory neither
    auto range = ranges_.at(index);
    memory_ = {};
    memory_.resize(range.tensor.bytes());
    range.tensor = Tensor(std::span(memory_), range.tensor.dtype(), range.tensor.shape());
    fill_(range);
    mapped_pages_used();
    filled_ = index;
  }
  return std::span<const std::byte>(memory_).subspan(first, buffer.size());
}

}  // namespace tessera::checkpoint
