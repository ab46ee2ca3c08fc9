#pragma once

#include <vector>

#include "framework/checkpoint/state_snapshot.h"

namespace tessera::checkpoint {

/// Ranges of the tensors of a checkpoint in our own format, read when they are saved again: what bytes() gives is read
/// from the file then, whole rows of a range at a time, and converted to the type of the range. Its ranges are without
/// elements in memory. `from` must outlive this object; checksums are not verified, so verify it before.
class StoredState final : public StateSnapshot {
 public:
  StoredState(const Checkpoint& from, std::vector<TensorRange> ranges)
      : StateSnapshot(std::move(ranges)), from_(from) {}
  std::span<const std::byte> bytes(std::size_t index, std::size_t first, std::span<std::byte> buffer) const override;

 private:
  const Checkpoint& from_;
  mutable std::vector<std::byte> rows_;
};

}  // namespace tessera::checkpoint
