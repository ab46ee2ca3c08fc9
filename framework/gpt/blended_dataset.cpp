#include "framework/gpt/blended_dataset.h"

#include <algorithm>

namespace tessera::gpt {

BlendedDataset::BlendedDataset(std::vector<std::unique_ptr<GptDataset>> parts, BlendIndex index,
                               std::string description)
    : parts_(std::move(parts)), index_(std::move(index)), description_(std::move(description)) {
  must(!parts_.empty(), "a blend has parts");
}

BlendedDataset::Sample BlendedDataset::sample_of(std::int64_t index) const {
  must(index >= 0 && index < samples(), "a sample is asked for by its number");
  const auto part = part_of(index), sample = index_.part_sample[index];
  index_.part.require_pages();
  index_.part_sample.require_pages();
  if (part < 0 || part >= static_cast<std::int64_t>(parts_.size()) || sample < 0 ||
      sample >= parts_[static_cast<std::size_t>(part)]->samples())
    throw ConfigError(text("sample ", index, " of the blend is sample ", sample, " of its part ", part,
                           ", which is not there; delete the cache of the blend, or make mid_level_dataset_surplus "
                           "larger"));
  return {*parts_[static_cast<std::size_t>(part)], sample};
}

void BlendedDataset::read(std::int64_t index, const SampleView& out) const {
  const auto sample = sample_of(index);
  sample.part.read(sample.index, out);
}

std::vector<data::TokenOrigin> BlendedDataset::origins(std::int64_t index) const {
  const auto sample = sample_of(index);
  return sample.part.origins(sample.index);
}

bool BlendedDataset::one_document_each() const {
  return std::all_of(parts_.begin(), parts_.end(), [](const auto& part) { return part->one_document_each(); });
}

}  // namespace tessera::gpt
