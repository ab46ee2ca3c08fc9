#pragma once

#include "framework/data/sampler.h"

namespace tessera::data {

/// Replaces a dataset on ranks that need no tokens: pipeline stages without embedding and loss. It has the same number
/// and length of samples, in token_fields(); tokens are 0, labels -1, the loss mask is 0, positions count from 0, and
/// each sample is one document. If lengths vary, this dataset does not know them: it writes samples of any length.
class NoTokens final : public Dataset {
 public:
  NoTokens(std::int64_t samples, std::int64_t seq_length, bool lengths_vary = false, std::int64_t rows_per_sample = 1)
      : samples_(samples), seq_length_(seq_length), rows_(rows_per_sample), lengths_vary_(lengths_vary) {}
  std::int64_t samples() const override { return samples_; }
  std::int64_t rows_per_sample() const override { return rows_; }
  std::int64_t seq_length() const override { return seq_length_; }
  void read(std::int64_t index, const SampleView& out) const override;
  bool extents_vary() const override { return lengths_vary_; }
  bool knows_extents() const override { return !lengths_vary_; }
  bool one_document_each() const override { return true; }

 private:
  std::int64_t samples_, seq_length_, rows_;
  bool lengths_vary_;
};

/// The sampler for NoTokens: always sample 0, because all samples are equal.
class AnyOrder final : public Sampler {
 public:
  std::int64_t index(std::int64_t) const override { return 0; }
};

}  // namespace tessera::data
