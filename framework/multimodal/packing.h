#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tessera::multimodal {

/// How records are packed into rows, as PackedSupervisedDatasetProcessor of MindSpeed-MM packs them: the records are
/// divided into contiguous shares, one for each of its processes, a share into batches, and each batch is packed alone.
struct Packing {
  std::int64_t capacity = 0;          ///< maximum number of tokens of a packed row; 0: records are not packed
  bool attends_within_record = true;  ///< each token attends to its own record only; false: to the whole row before it
  std::int64_t shares = 1;            ///< capped at the number of records
  std::int64_t records_at_once = 1000;

  bool is_on() const { return capacity > 0; }
};

/// Divides rows of `lengths` tokens, each at most `capacity`, into packed rows by LLaMA-Factory's greedy algorithm:
/// each takes the longest remaining row that fits, the last one of several of that length, until none fits. Returns
/// the indices of the rows of each, in their order within it.
std::vector<std::vector<std::size_t>> packed_rows(std::span<const std::int64_t> lengths, std::int64_t capacity);

/// The number of the batch in which each of `records` records is packed; not decreasing.
std::vector<std::int64_t> packing_batches(std::int64_t records, const Packing& packing);

}  // namespace tessera::multimodal
