#include "framework/data/sampler.h"

#include <algorithm>

namespace tessera::data {

SampleView rows_of(const Dataset& dataset, std::int64_t sample, Batch& batch) {
  const auto rows = dataset.rows_per_sample();
  return samples_of<SampleView>(batch, sample * rows, rows);
}

void write_ids(std::int64_t number, const SampleView& rows) {
  for (std::size_t row = 0; row < rows.sample_ids.size(); ++row)
    rows.sample_ids[row] = number * rows.samples + static_cast<std::int64_t>(row);
}

void fit(const Dataset& dataset, std::span<const std::int64_t> indices, const BatchShare& share, Batch& batch,
         bool (*passes)()) {
  if (!dataset.extents_vary() || !dataset.knows_extents()) return;
  std::int64_t longest = 1;
  const auto rows_of_each = dataset.rows_per_sample();
  for (std::size_t sample = 0; sample < indices.size(); ++sample) {
    const auto rows = batch.own_rows(static_cast<std::int64_t>(sample) * rows_of_each, rows_of_each);
    std::fill(rows.begin(), rows.end(), 0);
    try {
      longest = std::max(longest, dataset.extents(indices[sample], rows));
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
  if (batch.samples % dataset.rows_per_sample() != 0)
    throw ShapeError(text("read_batch: the batch holds ", batch.samples, " rows, each sample of the dataset fills ",
                          dataset.rows_per_sample()));
  const BatchShare share{batch.samples / dataset.rows_per_sample(), rank, ranks};
  std::vector<std::int64_t> indices;
  for (std::int64_t i = 0; i < share.samples; ++i) indices.push_back(order.index(share.number(consumed, i)));
  fit(dataset, indices, share, batch);
  for (std::int64_t i = 0; i < share.samples; ++i) {
    const auto rows = rows_of(dataset, i, batch);
    dataset.read(indices[static_cast<std::size_t>(i)], rows);
    write_ids(share.number(consumed, i), rows);
  }
}

}  // namespace tessera::data
