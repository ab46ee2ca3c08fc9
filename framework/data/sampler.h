#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "framework/tensor/batch.h"

namespace tessera::data {

/// Origin of a range of consecutive tokens of a sample.
struct TokenOrigin {
  std::int64_t first = 0, count = 0;  ///< the range [first, first + count) of the sample's tokens
  std::int64_t document = 0;          ///< number of the document in its file, from 0
  std::int64_t sequence = 0;          ///< number of the sequence in its file, from 0
  std::int64_t offset = 0;            ///< offset of the first token in the sequence
  std::string place;                  ///< position of the first token, for people: file, document, token
  std::int64_t row = 0;               ///< the row of the sample that has the tokens
};

/// A dataset: samples by index. All functions are const and thread-safe.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual std::int64_t samples() const = 0;
  /// Rows of a micro-batch that a sample fills: 2 for a pair of a chosen and a rejected completion, in this order. All
  /// counts of samples are counts of such pairs, so that the rows of a sample are always in the same micro-batch.
  virtual std::int64_t rows_per_sample() const { return 1; }
  /// Tokens of a row; if extents vary, the most.
  virtual std::int64_t seq_length() const = 0;
  /// The fields of its samples; the batches that it writes into have the same.
  virtual const BatchFields& fields() const { return token_fields(); }
  /// Whether samples differ in their number of tokens, or have a field with extents of its own.
  virtual bool extents_vary() const { return false; }
  /// Whether extents() knows them: false for NoTokens, which writes samples of any length.
  virtual bool knows_extents() const { return true; }
  /// The number of tokens of the longest row of sample `index`, without padding; writes its rows in each field with
  /// extents of its own to `rows` [rows_per_sample, fields()]. Called only if extents vary. Throws as read().
  virtual std::int64_t extents(std::int64_t index, std::span<std::int64_t> rows) const {
    (void)index, (void)rows;
    return seq_length();
  }
  /// Writes sample `index`, in [0, samples()), into all fields of `out`, which has rows_per_sample() rows, except
  /// sample_ids. If extents vary, `out` has its extents and at least its tokens: the rest of `out` is padding, to be
  /// written too. Allocates nothing in steady state. Throws BadSampleError or IoError if the sample cannot be used,
  /// ConfigError if the dataset cannot be used.
  virtual void read(std::int64_t index, const SampleView& out) const = 0;
  /// Origins of the tokens of sample `index`, in order, without padding; empty: unknown.
  virtual std::vector<TokenOrigin> origins(std::int64_t index) const {
    (void)index;
    return {};
  }
  /// Whether every sample has positions 0, 1, 2, ... and document_start 0, independent of its tokens. If so, pipeline
  /// stages with neither the embedding nor the loss need no data.
  virtual bool one_document_each() const { return false; }
};

/// The order in which samples are consumed. It is a function of the number of consumed samples, so resuming needs no
/// state. Thread-safe.
class Sampler {
 public:
  virtual ~Sampler() = default;
  /// Index in the dataset of the run's sample number `consumed`, counted from 0 over all ranks.
  virtual std::int64_t index(std::int64_t consumed) const = 0;
  /// Number of samples that all data-parallel ranks read at once, if the order depends on it: a run can then resume
  /// only after a multiple of it. 0: the order does not depend on micro-batch size and ranks.
  virtual std::int64_t stride() const { return 0; }
};

/// The samples of a data-parallel rank: of the samples that follow `consumed`, rank r takes [consumed + r * samples,
/// consumed + (r + 1) * samples), as Megatron-LM's samplers divide them.
struct BatchShare {
  std::int64_t samples = 1;  ///< samples of a micro-batch on one rank, each of Dataset::rows_per_sample() rows
  int rank = 0, ranks = 1;
  std::int64_t length_multiple = 1;  ///< lengths that vary are padded to a multiple of it, or to the longest possible

  /// Position in the run of sample `sample` of this rank's micro-batch that follows `consumed` samples.
  std::int64_t number(std::int64_t consumed, std::int64_t sample) const { return consumed + rank * samples + sample; }
  /// Samples of a micro-batch on all ranks.
  std::int64_t of_all_ranks() const { return samples * ranks; }
};

/// The rows of sample `sample` of a micro-batch of `dataset`, to be written.
SampleView rows_of(const Dataset& dataset, std::int64_t sample, Batch& batch);
/// Writes the sample_ids of the rows of the sample at position `number` of the run: each row has one of its own.
void write_ids(std::int64_t number, const SampleView& rows);

/// Gives `batch` the extents of a micro-batch of the samples `indices`: the length of the longest, padded to a multiple
/// of share.length_multiple, and their rows. Does nothing if the extents of `dataset` do not vary. A sample for which
/// Dataset::extents throws gets none if `passes` returns true for the exception in flight; else it is thrown.
void fit(
    const Dataset& dataset, std::span<const std::int64_t> indices, const BatchShare& share, Batch& batch,
    bool (*passes)() = [] { return false; });

/// Fills `batch` with the samples of rank `rank` that follow `consumed`. Throws ShapeError if the batch
/// has other fields or another length than the dataset; and as the dataset and sampler do.
void read_batch(const Dataset& dataset, const Sampler& order, std::int64_t consumed, int rank, int ranks, Batch& batch);

}  // namespace tessera::data
