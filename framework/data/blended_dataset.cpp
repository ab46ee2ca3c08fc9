#include "framework/data/blended_dataset.h"

namespace tessera {

BlendedDataset::BlendedDataset(std::vector<std::unique_ptr<GptDataset>> parts, BlendIndex index,
                               std::string description)
    : parts_(std::move(parts)), index_(std::move(index)), description_(std::move(description)) {
  must(!parts_.empty(), "a blend has parts");
}

void BlendedDataset::read(std::int64_t index, const SampleView& out) const {
  must(index >= 0 && index < samples(), "a sample is read by its number");
  const auto part = part_of(index), sample = index_.part_sample[index];
  if (part < 0 || part >= static_cast<std::int64_t>(parts_.size()) || sample < 0 ||
      sample >= parts_[static_cast<std::size_t>(part)]->samples())
    throw ConfigError(text("sample ", index, " of the blend is sample ", sample, " of its part ", part,
                           ", which is not there; delete the cache of the blend, or make mid_level_dataset_surplus "
                           "larger"));
  parts_[static_cast<std::size_t>(part)]->read(sample, out);
}

}  // namespace tessera
