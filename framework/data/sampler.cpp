#include "framework/data/sampler.h"

#include <algorithm>

namespace tessera::data {

void fit(const Dataset& dataset, std::span<const std::int64_t> indices, const BatchShare& share, Batch& batch,
         bool (*passes)()) {
  if (!dataset.extents_vary() || !dataset.knows_extents()) return;
  std::int64_t longest = 1;
  for (std::size_t row = 0; row < indices.size(); ++row) {
    const auto rows = batch.own_rows(static_cast<std::int64_t>(row));
    std::fill(rows.begin(), rows.end(), 0);
    try {
      longest = std::max(longest, dataset.extents(indices[row], rows));
    } catch (const Error&) {
      if (!passes()) throw;
      std::fill(rows.begin(), rows.end(), 0);
    }
  }
  const auto padded = (longest + share.length_multiple - 1) / share.length_multiple * share.length_multiple;
  batch.resize(std::min(padded, batch.capacity()));
}

void read_batch(const Dataset& dataset, const Sampler& order, std::int64_t consumed, int rank, int ranks,
                Batch& batch) {
  must(rank >= 0 && rank < ranks, "a rank is one of its ranks");
  if (batch.capacity() != dataset.seq_length() || !batch.has(dataset.fields()))
    throw ShapeError(text("read_batch: the batch holds samples of ", batch.capacity(), " tokens, the dataset gives ",
                          dataset.seq_length(), batch.has(dataset.fields()) ? "" : ", with other fields"));
  const BatchShare share{batch.samples, rank, ranks};
  std::vector<std::int64_t> indices;
  for (std::int64_t row = 0; row < batch.samples; ++row) indices.push_back(order.index(share.number(consumed, row)));
  fit(dataset, indices, share, batch);
  for (std::int64_t row = 0; row < batch.samples; ++row) {
    const auto at = static_cast<std::size_t>(row);
    dataset.read(indices[at], batch.sample(row));
    batch.sample_ids[at] = share.number(consumed, row);
  }
}

}  // namespace tessera::data
