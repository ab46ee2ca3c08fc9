#pragma once

#include <memory>
#include <string>
#include <vector>

#include "framework/data/sampler.h"
#include "framework/gpt/blend.h"
#include "framework/gpt/gpt_dataset.h"

namespace tessera::gpt {

/// Megatron-LM's BlendedDataset: samples of several datasets in the order of a BlendIndex.
class BlendedDataset final : public data::Dataset {
 public:
  /// `description`: Megatron-LM's unique_description; may be empty.
  BlendedDataset(std::vector<std::unique_ptr<GptDataset>> parts, BlendIndex index, std::string description);

  std::int64_t samples() const override { return index_.part.size(); }
  std::int64_t seq_length() const override { return parts_.front()->seq_length(); }
  const BatchFields& fields() const override { return parts_.front()->fields(); }
  /// Throws as Dataset::read; ConfigError also if the index does not match the parts: a damaged cache, or a part with
  /// too few samples.
  void read(std::int64_t index, const SampleView& out) const override;
  std::vector<data::TokenOrigin> origins(std::int64_t index) const override;
  bool one_document_each() const override;

  /// Number of the part that a sample comes from.
  std::int64_t part_of(std::int64_t index) const { return index_.part[index]; }
  const std::vector<std::unique_ptr<GptDataset>>& parts() const { return parts_; }
  const BlendIndex& index() const { return index_; }
  const std::string& description() const { return description_; }

 private:
  /// A sample of a part.
  struct Sample {
    const GptDataset& part;
    std::int64_t index;
  };
  Sample sample_of(std::int64_t index) const;

  std::vector<std::unique_ptr<GptDataset>> parts_;
  BlendIndex index_;
  std::string description_;
};

}  // namespace tessera::gpt
