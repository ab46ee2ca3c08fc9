#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "framework/checkpoint/checkpoint.h"

namespace tessera::checkpoint {

/// What one rank saves in a checkpoint: ranges of named tensors, which are fixed while the snapshot exists, and small
/// files. A save reads elements only through bytes(), possibly in another thread, while training may already change the
/// state that the snapshot was taken of; each implementation says whether it may.
class StateSnapshot {
 public:
  virtual ~StateSnapshot() = default;
  StateSnapshot(const StateSnapshot&) = delete;
  StateSnapshot& operator=(const StateSnapshot&) = delete;

  /// Names, shapes, offsets and element types. Read the elements through bytes().
  const std::vector<TensorRange>& ranges() const { return ranges_; }
  /// Only those of the rank that commits the checkpoint are saved.
  const Blobs& blobs() const { return blobs_; }

  /// Bytes [first, first + buffer.size()) of the elements of range `index`, as they were when the snapshot was taken:
  /// memory of the snapshot, or `buffer`, into which they were copied. Valid while `buffer` is unchanged and the
  /// snapshot exists. Called by one thread at a time.
  /// This implementation gives the memory of the range's tensor.
  virtual std::span<const std::byte> bytes(std::size_t index, std::size_t first, std::span<std::byte> buffer) const;
  /// Called when nothing will be read any more, by the thread that has read.
  virtual void end_reading() const {}

 protected:
  explicit StateSnapshot(std::vector<TensorRange> ranges, Blobs blobs = {})
      : ranges_(std::move(ranges)), blobs_(std::move(blobs)) {}

  std::vector<TensorRange> ranges_;
  Blobs blobs_;
};

/// The state itself, without a copy. Its memory must outlive this object, and nobody may change it meanwhile.
class LiveState final : public StateSnapshot {
 public:
  explicit LiveState(std::vector<TensorRange> ranges, Blobs blobs = {})
      : StateSnapshot(std::move(ranges), std::move(blobs)) {}
};

/// A copy of the state, made by the constructor. The state may change at once.
class CopiedState final : public StateSnapshot {
 public:
  explicit CopiedState(std::vector<TensorRange> ranges, Blobs blobs = {});

 private:
  std::vector<std::byte> copy_;
};

}  // namespace tessera::checkpoint
