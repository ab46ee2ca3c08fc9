#include "framework/checkpoint/state_snapshot.h"

namespace tessera::checkpoint {

std::span<const std::byte> StateSnapshot::bytes(std::size_t index, std::size_t first,
                                                std::span<std::byte> buffer) const {
  return std::span<const std::byte>(ranges_.at(index).tensor.raw()).subspan(first, buffer.size());
}

CopiedState::CopiedState(std::vector<TensorRange> ranges, Blobs blobs)
    : StateSnapshot(std::move(ranges), std::move(blobs)) {
  std::size_t total = 0;
  for (const auto& range : ranges_) total += range.tensor.bytes();
  copy_.reserve(total);
  for (auto& range : ranges_) {
    const auto live = range.tensor.raw();
    const auto first = copy_.size();
    copy_.insert(copy_.end(), live.begin(), live.end());
    range.tensor = Tensor(std::span(copy_).subspan(first, live.size()), range.tensor.dtype(), range.tensor.shape());
  }
}

}  // namespace tessera::checkpoint
