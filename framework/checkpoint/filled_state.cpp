#include "framework/checkpoint/filled_state.h"

#include <algorithm>

#include "framework/base/mapped_pages.h"

namespace tessera::checkpoint {

/// Makes the range `index`, or those of its rows that have byte `first`.
void FilledState::fill(std::size_t index, std::size_t first) const {
  filled_ = ranges_.size();  // if it cannot be filled, it is in memory neither
  begin_ = 0;
  auto range = ranges_.at(index);
  const auto rows = range.tensor.shape().rank() > 0 ? range.tensor.shape()[0] : 1;
  if (rows > 1 && range.tensor.bytes() > most_ && in_rows_ && in_rows_(range)) {
    const auto row_bytes = range.tensor.bytes() / static_cast<std::size_t>(rows);
    const auto count = static_cast<std::int64_t>(std::max<std::size_t>(1, most_ / row_bytes));
    const auto row = static_cast<std::int64_t>(first / row_bytes) / count * count;
    auto extents = std::vector<std::int64_t>(range.tensor.shape().dims().begin(), range.tensor.shape().dims().end());
    extents[0] = std::min(count, rows - row);
    range.offsets[0] += row;
    range.tensor = Tensor::without_elements(range.tensor.dtype(), Shape(extents));
    begin_ = static_cast<std::size_t>(row) * row_bytes;
  }
  memory_ = {};
  memory_.resize(range.tensor.bytes());
  range.tensor = Tensor(std::span(memory_), range.tensor.dtype(), range.tensor.shape());
  fill_(range);
  mapped_pages_used();
  filled_ = index;
}

std::span<const std::byte> FilledState::bytes(std::size_t index, std::size_t first, std::span<std::byte> buffer) const {
  const auto is_here = [&](std::size_t at) { return index == filled_ && at >= begin_ && at < begin_ + memory_.size(); };
  if (!is_here(first)) fill(index, first);
  if (first + buffer.size() <= begin_ + memory_.size())
    return std::span<const std::byte>(memory_).subspan(first - begin_, buffer.size());
  for (std::size_t done = 0; done < buffer.size();) {
    if (!is_here(first + done)) fill(index, first + done);
    const auto from = std::span<const std::byte>(memory_).subspan(first + done - begin_);
    const auto count = std::min(from.size(), buffer.size() - done);
    std::copy_n(from.begin(), count, buffer.begin() + static_cast<std::ptrdiff_t>(done));
    done += count;
  }
  return buffer;
}

}  // namespace tessera::checkpoint
