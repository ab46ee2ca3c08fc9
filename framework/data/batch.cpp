#include "framework/data/batch.h"

#include "framework/base/error.h"

namespace tessera {

Batch::Batch(std::int64_t sample_count, std::int64_t length) : samples(sample_count), seq_length(length) {
  const auto elements = static_cast<std::size_t>(samples * seq_length);
  for (auto* ids : {&tokens, &labels, &positions, &document_start}) ids->resize(elements);
  loss_mask.resize(elements);
  sample_ids.resize(static_cast<std::size_t>(samples));
}

SampleView Batch::sample(std::int64_t row) {
  must(row >= 0 && row < samples, "a batch has the row asked for");
  const auto first = static_cast<std::size_t>(row * seq_length), count = static_cast<std::size_t>(seq_length);
  return {{tokens.data() + first, count},
          {labels.data() + first, count},
          {loss_mask.data() + first, count},
          {positions.data() + first, count},
          {document_start.data() + first, count}};
}

void read_batch(const Dataset& dataset, const Sampler& order, std::int64_t consumed, int rank, int ranks,
                Batch& batch) {
  must(rank >= 0 && rank < ranks, "a rank is one of its ranks");
  if (batch.seq_length != dataset.seq_length())
    throw ShapeError(text("read_batch: the batch holds samples of ", batch.seq_length, " tokens, the dataset gives ",
                          dataset.seq_length()));
  for (std::int64_t row = 0; row < batch.samples; ++row) {
    const auto number = consumed + rank * batch.samples + row;
    dataset.read(order.index(number), batch.sample(row));
    batch.sample_ids[static_cast<std::size_t>(row)] = number;
  }
}

}  // namespace tessera
