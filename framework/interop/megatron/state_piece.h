#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "framework/checkpoint/state_snapshot.h"
#include "framework/interop/torch/zip.h"
#include "framework/tensor/dtype.h"
#include "framework/tensor/shape.h"

namespace tessera::megatron {

/// Elements [first, first + count) of the range `range` of a snapshot, in row-major order. The snapshot must outlive
/// this object.
struct StatePiece {
  const checkpoint::StateSnapshot* state;
  std::size_t range;
  std::int64_t first, count;

  /// Gives the elements to `sink` in the type `type`, in order, at most 2^18 at a time.
  void pour(DType type, const torch::ArchiveWriter::Sink& sink) const;
  torch::ArchiveWriter::Stream as(DType type) const;  ///< the same, when they are written
};

/// A tensor that has the elements of the pieces one after the other.
struct StatePieces {
  Shape shape = {};
  std::vector<StatePiece> pieces = {};

  torch::ArchiveWriter::Stream as(DType type) const;
};

}  // namespace tessera::megatron
