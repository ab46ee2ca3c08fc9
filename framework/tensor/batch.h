#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "framework/base/error.h"

namespace tessera {

/// The arrays of a micro-batch: `samples` token sequences of `seq_length` tokens, one after the other. This is the one
/// list of them, from the dataset to the kernels; `Array` says who owns the memory (Batch, SampleView, TokenBatch).
///
/// A sample may hold several documents, and may end with padding: label -1 and loss mask 0.
template <template <class> class Array>
struct BatchArrays {
  std::int64_t samples = 0, seq_length = 0;
  Array<std::int32_t> tokens = {};     ///< [samples, seq_length]: input ids
  Array<std::int32_t> labels = {};     ///< [samples, seq_length]: the token that follows each; -1: none
  Array<float> loss_mask = {};         ///< [samples, seq_length]: 1 counts, 0 does not
  Array<std::int32_t> positions = {};  ///< [samples, seq_length]: from 0, restarting where positions are reset
  /// [samples, seq_length]: index within the sample of the first token that this one may attend to.
  Array<std::int32_t> document_start = {};
  Array<std::int64_t> sample_ids = {};  ///< [samples]: number of each sample in the whole run, keys its dropout
  /// Attention mask [samples, seq_length, seq_length]: not 0 where a token (row) sees another one. It replaces document
  /// boundaries and causality. Empty: causal attention within documents, by document_start. Slow; for masks that cannot
  /// be expressed otherwise.
  Array<std::uint8_t> visible = {};
};

template <class T>
using OwnedArray = std::vector<T>;
template <class T>
using WritableArray = std::span<T>;
template <class T>
using ReadableArray = std::span<const T>;

/// Samples in memory of the caller, to be written: what a dataset fills, mostly one sample.
using SampleView = BatchArrays<WritableArray>;
/// Samples in memory of the caller, to be read: what a model gets. A model needs them unchanged until its backward pass
/// is done.
using TokenBatch = BatchArrays<ReadableArray>;

/// Samples [first, first + count) of `all` as a SampleView or TokenBatch into its memory. An array that is empty in
/// `all` is empty in the view. Throws BugError for samples that `all` does not have.
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

/// A micro-batch that owns its memory and is reused from step to step. `visible` is empty.
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

  /// One sample, to be written. Throws BugError for a row that the batch does not have.
  SampleView sample(std::int64_t row) { return samples_of<SampleView>(*this, row, 1); }
  /// All samples, or the first `count`. Throws BugError if there are fewer.
  TokenBatch view() const { return view(samples); }
  TokenBatch view(std::int64_t count) const { return samples_of<TokenBatch>(*this, 0, count); }
};

}  // namespace tessera
