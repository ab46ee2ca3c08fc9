#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "framework/tensor/batch.h"

namespace tessera::data {

/// Where consecutive tokens of a sample come from.
struct TokenOrigin {
  std::int64_t first = 0, count = 0;  ///< tokens [first, first + count) of the sample
  std::int64_t document = 0;          ///< number of the document in its file, from 0
  std::int64_t sequence = 0;          ///< number of the sequence in its file, from 0
  std::int64_t offset = 0;            ///< of the first of these tokens in the sequence
  std::string place;                  ///< of the first of these tokens, for people: file, document, token
};

/// Samples by number. All functions are const and may be called by several threads at a time.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual std::int64_t samples() const = 0;
  virtual std::int64_t seq_length() const = 0;
  /// Write sample `index`, in [0, samples()), into `out`: all arrays but sample_ids and visible. Allocates nothing in
  /// steady state. Throws BadSampleError or IoError for a sample that cannot be used, ConfigError for a dataset that
  /// cannot.
  virtual void read(std::int64_t index, const SampleView& out) const = 0;
  /// Where the tokens of sample `index` come from, in their order, without padding; empty: not known.
  virtual std::vector<TokenOrigin> origins(std::int64_t index) const {
    (void)index;
    return {};
  }
  /// Whether positions are 0, 1, 2, ... and document_start is 0 in all samples, whatever their tokens. Then pipeline
  /// stages that have neither the embedding nor the loss need no data.
  virtual bool one_document_each() const { return false; }
};

/// The order in which samples are fed. A function of the number of samples consumed, so resuming needs no state. May be
/// asked by several threads at a time.
class Sampler {
 public:
  virtual ~Sampler() = default;
  /// Index into the dataset of sample `consumed` of the run (counted over all ranks).
  virtual std::int64_t index(std::int64_t consumed) const = 0;
};

/// Which samples a data-parallel rank takes: rank r of `ranks` takes samples consumed + r * samples .. + samples of
/// those that follow `consumed`, as Megatron's samplers cut a micro-batch step over data-parallel ranks.
struct BatchShare {
  std::int64_t samples = 1;  ///< of a micro-batch on one rank
  int rank = 0, ranks = 1;

  /// Number in the run of the sample in `row` of the micro-batch of this rank that follows `consumed` samples.
  std::int64_t number(std::int64_t consumed, std::int64_t row) const { return consumed + rank * samples + row; }
  /// Samples of a micro-batch on all ranks.
  std::int64_t of_all_ranks() const { return samples * ranks; }
};

/// Fill `batch` with the samples that follow `consumed` for this rank. Throws ShapeError if the dataset's samples have
/// another length than the batch's, and what the dataset or sampler throws.
void read_batch(const Dataset& dataset, const Sampler& order, std::int64_t consumed, int rank, int ranks, Batch& batch);

}  // namespace tessera::data
