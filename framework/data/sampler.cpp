#include "framework/data/sampler.h"

namespace tessera::data {

void read_batch(const Dataset& dataset, const Sampler& order, std::int64_t consumed, int rank, int ranks,
                Batch& batch) {
  must(rank >= 0 && rank < ranks, "a rank is one of its ranks");
  if (batch.seq_length != dataset.seq_length())
    throw ShapeError(text("read_batch: the batch holds samples of ", batch.seq_length, " tokens, the dataset gives ",
                          dataset.seq_length()));
  const BatchShare share{batch.samples, rank, ranks};
  for (std::int64_t row = 0; row < batch.samples; ++row) {
    const auto number = share.number(consumed, row);
    dataset.read(order.index(number), batch.sample(row));
    batch.sample_ids[static_cast<std::size_t>(row)] = number;
  }
}

}  // namespace tessera::data
