#pragma once

#include <functional>
#include <vector>

#include "framework/checkpoint/state_snapshot.h"

namespace tessera::checkpoint {

/// Ranges whose elements are made when they are saved, one range at a time, or some rows of one: only their memory is
/// needed. Its ranges are without elements in memory.
class FilledState final : public StateSnapshot {
 public:
  /// Writes all elements of a range, whose name, box and type are those of one of ranges(), or of some of its rows.
  /// Memory is zero before.
  using Fill = std::function<void(const TensorRange& into)>;

  /// Whether `fill` makes some rows of a range without making the others.
  using InRows = std::function<bool(const TensorRange& range)>;
  static constexpr std::size_t bytes_of_rows = std::size_t{16} << 20;

  /// `most`: about as many bytes of rows are made at a time of a range that is larger.
  FilledState(std::vector<TensorRange> ranges, Fill fill, InRows in_rows = {}, std::size_t most = bytes_of_rows)
      : StateSnapshot(std::move(ranges)),
        fill_(std::move(fill)),
        in_rows_(std::move(in_rows)),
        most_(most),
        filled_(ranges_.size()) {}
  std::span<const std::byte> bytes(std::size_t index, std::size_t first, std::span<std::byte> buffer) const override;

 private:
  void fill(std::size_t index, std::size_t first) const;

  Fill fill_;
  InRows in_rows_;
  std::size_t most_;
  mutable std::size_t filled_;     ///< index of the range that is in memory_, or some rows of it
  mutable std::size_t begin_ = 0;  ///< of memory_ in the range, in bytes
  mutable std::vector<std::byte> memory_;
};

}  // namespace tessera::checkpoint
