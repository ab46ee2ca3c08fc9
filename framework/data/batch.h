#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace tessera {

/// One training sample in memory of the caller, each [seq_length].
struct SampleView {
  std::span<std::int32_t> tokens;          ///< input ids
  std::span<std::int32_t> labels;          ///< the token that follows each; -1: none
  std::span<float> loss_mask;              ///< 1 counts, 0 does not
  std::span<std::int32_t> positions;       ///< from 0, restarting where positions are reset
  std::span<std::int32_t> document_start;  ///< index in this sample of the first token that this one may attend to
};

/// Samples by number. Reading is const and allocates nothing in steady state.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual std::int64_t samples() const = 0;
  virtual std::int64_t seq_length() const = 0;
  /// Write sample `index`, in [0, samples()), into `out`.
  virtual void read(std::int64_t index, const SampleView& out) const = 0;
};

/// A micro batch: `samples` samples one after the other, and which they are. Owns its memory; reused from step to step.
class Batch {
 public:
  Batch(std::int64_t samples, std::int64_t seq_length);

  std::int64_t samples, seq_length;
  std::vector<std::int32_t> tokens, labels, positions, document_start;  ///< [samples, seq_length]
  std::vector<float> loss_mask;                                         ///< [samples, seq_length]
  std::vector<std::int64_t> sample_ids;  ///< [samples]: number of each in the whole run, key of its dropout

  SampleView sample(std::int64_t row);
};

/// The order in which samples are fed. A function of the number of samples consumed, so resuming needs no state.
class Sampler {
 public:
  virtual ~Sampler() = default;
  /// Index into the dataset of sample `consumed` of the run (counted over all ranks).
  virtual std::int64_t index(std::int64_t consumed) const = 0;
};

/// Fill `batch` with the samples that follow `consumed` for this rank: rank r of `ranks` takes samples
/// consumed + r * batch.samples .. + batch.samples, as Megatron's samplers cut a micro batch step over data-parallel
/// ranks.
void read_batch(const Dataset& dataset, const Sampler& order, std::int64_t consumed, int rank, int ranks, Batch& batch);

}  // namespace tessera
