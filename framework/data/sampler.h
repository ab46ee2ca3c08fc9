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
};

/// A dataset: samples by index. All functions are const and thread-safe.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual std::int64_t samples() const = 0;
  virtual std::int64_t seq_length() const = 0;
  /// Writes sample `index`, in [0, samples()), into all arrays of `out` except sample_ids and visible. Allocates
  /// nothing in steady state. Throws BadSampleError or IoError if the sample cannot be used, ConfigError if the dataset
  /// cannot be used.
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
  std::int64_t samples = 1;  ///< samples of a micro-batch on one rank
  int rank = 0, ranks = 1;

  /// Position in the run of the sample in row `row` of this rank's micro-batch that follows `consumed` samples.
  std::int64_t number(std::int64_t consumed, std::int64_t row) const { return consumed + rank * samples + row; }
  /// Samples of a micro-batch on all ranks.
  std::int64_t of_all_ranks() const { return samples * ranks; }
};

/// Fills `batch` with the samples of rank `rank` that follow `consumed`. Throws ShapeError if the samples of the
/// dataset have another length than those of the batch; and as the dataset and sampler do.
void read_batch(const Dataset& dataset, const Sampler& order, std::int64_t consumed, int rank, int ranks, Batch& batch);

}  // namespace tessera::data
