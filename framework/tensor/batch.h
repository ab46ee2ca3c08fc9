#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "framework/base/error.h"

namespace tessera {

/// The arrays of a micro-batch of `samples` consecutive token sequences of `seq_length` tokens each. Datasets, models
/// and kernels all use this struct; the template argument `Array` decides who owns the memory: Batch owns its arrays,
/// SampleView and TokenBatch refer to memory of the caller.
///
/// A sample may hold several documents, and may end with padding: tokens with label -1 and loss mask 0.
template <template <class> class Array>
struct BatchArrays {
  std::int64_t samples = 0, seq_length = 0;
  Array<std::int32_t> tokens = {};     ///< [samples, seq_length]: input ids
  Array<std::int32_t> labels = {};     ///< [samples, seq_length]: id of the token to predict; -1: none
  Array<float> loss_mask = {};         ///< [samples, seq_length]: weight of the token's loss; 1: counted, 0: ignored
  Array<std::int32_t> positions = {};  ///< [samples, seq_length]: from 0; restart at documents if positions are reset
  /// [samples, seq_length]: index within the sample of the first token that each token may attend to.
  Array<std::int32_t> document_start = {};
  Array<std::int64_t> sample_ids = {};  ///< [samples]: index of each sample in the whole run; keys its dropout
  /// Attention mask [samples, seq_length, seq_length]: element (query, key) is not 0 if the query token may attend to
  /// the key token. It replaces document boundaries and causality. Empty: causal attention within documents, by
  /// document_start. Slow; for masks that cannot be expressed otherwise.
  Array<std::uint8_t> visible = {};
};

template <class T>
using OwnedArray = std::vector<T>;
template <class T>
using WritableArray = std::span<T>;
template <class T>
using ReadableArray = std::span<const T>;

/// Samples in memory of the caller, to be written by a dataset; usually a single sample.
using SampleView = BatchArrays<WritableArray>;
/// Samples in memory of the caller, the input of a model. They must stay unchanged until the backward pass is done.
using TokenBatch = BatchArrays<ReadableArray>;

/// Samples [first, first + count) of `all` as a SampleView or TokenBatch that refers to the memory of `all`. An array
/// that is empty in `all` is empty in the view. Throws BugError for samples that `all` does not have.
template <class View, class Arrays>
View samples_of(Arrays& all, std::int64_t first, std::int64_t count) {
  must(first >= 0 && count >= 0 && count <= all.samples - first, "a batch has the samples asked for");
  const auto part = [first, count](auto& array, std::int64_t each) {
    const std::span whole(array);
    return whole.empty()
               ? whole
               : whole.subspan(static_cast<std::size_t>(first * each), static_cast<std::size_t>(count * each));
  };
  const auto length = all.seq_length;
  return {.samples = count,
          .seq_length = length,
          .tokens = part(all.tokens, length),
          .labels = part(all.labels, length),
          .loss_mask = part(all.loss_mask, length),
          .positions = part(all.positions, length),
          .document_start = part(all.document_start, length),
          .sample_ids = part(all.sample_ids, 1),
          .visible = part(all.visible, length * length)};
}

/// A micro-batch that owns its memory and is reused from step to step. Has no attention mask: `visible` is empty.
class Batch : public BatchArrays<OwnedArray> {
 public:
  Batch(std::int64_t sample_count, std::int64_t length) {
    samples = sample_count;
    seq_length = length;
    const auto elements = static_cast<std::size_t>(samples * seq_length);
    for (auto* ids : {&tokens, &labels, &positions, &document_start}) ids->resize(elements);
    loss_mask.resize(elements);
    sample_ids.resize(static_cast<std::size_t>(samples));
  }

  /// Sample `row`, to be written. Throws BugError for a row that the batch does not have.
  SampleView sample(std::int64_t row) { return samples_of<SampleView>(*this, row, 1); }
  /// All samples, or the first `count`. Throws BugError if the batch has fewer than `count`.
  TokenBatch view() const { return view(samples); }
  TokenBatch view(std::int64_t count) const { return samples_of<TokenBatch>(*this, 0, count); }
};

}  // namespace tessera
