#pragma once

#include "framework/data/sampler.h"

namespace tessera::data {

/// Stands for a dataset on ranks that need no tokens: pipeline stages without embedding and loss. As many samples of
/// the same length; tokens are 0, labels -1, the loss mask is 0, positions count from 0 and each sample is one
/// document.
class NoTokens final : public Dataset {
 public:
  NoTokens(std::int64_t samples, std::int64_t seq_length) : samples_(samples), seq_length_(seq_length) {}
  std::int64_t samples() const override { return samples_; }
  std::int64_t seq_length() const override { return seq_length_; }
  void read(std::int64_t index, const SampleView& out) const override;
  bool one_document_each() const override { return true; }

 private:
  std::int64_t samples_, seq_length_;
};

/// The order of NoTokens: sample 0 for ever, for they are all alike.
class AnyOrder final : public Sampler {
 public:
  std::int64_t index(std::int64_t) const override { return 0; }
};

}  // namespace tessera::data
