#pragma once

#include <cstdint>
#include <vector>

#include "framework/checkpoint/format.h"
#include "framework/checkpoint/state_snapshot.h"

namespace tessera::checkpoint {

/// Ranges of the tensors of a checkpoint in our own format, read when they are saved again: what bytes() gives is read
/// from the file then, whole rows of a range at a time, and converted to the type of the range; see
/// read_other_padding() for ranges of tensors that differs_in_padding(). Its ranges are without elements in memory.
/// `from` must outlive this object; checksums are not verified, so verify it before.
class StoredState final : public StateSnapshot {
 public:
  StoredState(const Checkpoint& from, std::vector<TensorRange> ranges)
      : StateSnapshot(std::move(ranges)), from_(from) {}
  std::span<const std::byte> bytes(std::size_t index, std::size_t first, std::span<std::byte> buffer) const override;

 private:
  const Checkpoint& from_;
  mutable std::vector<std::byte> rows_;
};

/// The bytes of all tensors of `from` in the format of `save`: weights, optimizer state, and fp32 master weights
/// where it has them.
std::uint64_t bytes_of_save(const ForeignSave& save, const Checkpoint& from);

}  // namespace tessera::checkpoint
