#pragma once

#include <functional>
#include <vector>

#include "framework/checkpoint/state_snapshot.h"

namespace tessera::checkpoint {

/// Ranges whose elements are made when they are saved, one range at a time: only its memory is needed. Its
/// ranges are without elements in memory.
class FilledState final : public StateSnapshot {
 public:
  /// Writes all elements of a range, whose name, box and type are those of ranges() `index`. Memory is zero before.
  using Fill = std::function<void(const TensorRange& into)>;

  FilledState(std::vector<TensorRange> ranges, Fill fill)
      : StateSnapshot(std::move(ranges)), fill_(std::move(fill)), filled_(ranges_.size()) {}
  std::span<const std::byte> bytes(std::size_t index, std::size_t first, std::span<std::byte> buffer) const override;

 private:
  Fill fill_;
  mutable std::size_t filled_;  ///< index of the range that is in memory_
  mutable std::vector<std::byte> memory_;
};

}  // namespace tessera::checkpoint
