#pragma once

#include <array>
#include <memory>

#include "framework/comm/group_buffer.h"
#include "framework/tensor/arena.h"
#include "framework/training/state/state_layout.h"

namespace tessera::training {

/// The memory of the arrays of a StateLayout. Movable; the addresses of the arrays do not change.
class StateMemory {
 public:
  /// Allocates memory filled with zeros. Arrays that the data-parallel ranks exchange are in buffers that the ranks of
  /// `data` can access; then the call is collective. Throws Error if the system refuses the memory, and BugError if
  /// arrays are exchanged within a group of one rank.
  explicit StateMemory(const StateSegment& sizes, const comm::Communicator& data = {});
  /// Uses `segment`, memory of the caller that must outlive this object: at least sizes.bytes bytes, aligned to 64
  /// bytes, with zeros or what an earlier StateMemory of the same sizes left. Throws ShapeError if it is too short or
  /// not aligned, and BugError if arrays are exchanged.
  StateMemory(const StateSegment& sizes, std::span<std::byte> segment);
  /// Uses the segment of a file in memory that begins at `offset`, a multiple of the page size; it has sizes.bytes
  /// bytes, and other processes map it. The descriptor is not kept. `zeros`: the segment contains zeros; false: what an
  /// earlier StateMemory of the same sizes left. Collective over `data` if arrays are exchanged. Throws CommError.
  StateMemory(const StateSegment& sizes, int descriptor, std::size_t offset, bool zeros,
              const comm::Communicator& data);

  std::span<std::byte> bytes(StateArray which) { return arrays_[static_cast<std::size_t>(which)]; }
  std::span<const std::byte> bytes(StateArray which) const { return arrays_[static_cast<std::size_t>(which)]; }
  /// An fp32 array.
  std::span<float> floats(StateArray which);
  std::span<const float> floats(StateArray which) const;
  /// A range of an fp32 array.
  std::span<float> floats(const StateRange& range) { return floats(range.array).subspan(range.first, range.count); }
  std::span<const float> floats(const StateRange& range) const {
    return floats(range.array).subspan(range.first, range.count);
  }
  /// The buffer of an array that ranks exchange; null for other arrays.
  comm::GroupBuffer* buffer(StateArray which) { return buffers_[static_cast<std::size_t>(which)].get(); }

 private:
  Storage own_;
  comm::SharedMemory mapped_;  ///< segment of a file, used instead of `own_`
  std::array<std::unique_ptr<comm::GroupBuffer>, state_arrays> buffers_;
  std::array<std::span<std::byte>, state_arrays> arrays_;
};

}  // namespace tessera::training
