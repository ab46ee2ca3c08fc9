#pragma once

#include "framework/data/dataset.h"
#include "tests/image_samples.h"

namespace tessera::data {

/// A dataset of samples with no, one or two images, for models as model::small_vision describes them.
class ImagesOfRows final : public Dataset {
 public:
  explicit ImagesOfRows(std::int64_t seq_length) : seq_length_(seq_length) {}
  std::int64_t samples() const override { return 400; }
  std::int64_t seq_length() const override { return seq_length_; }
  const BatchFields& fields() const override {
    static const auto all = model::image_fields();
    return all;
  }
  bool extents_vary() const override { return true; }
  std::int64_t extents(std::int64_t index, std::span<std::int64_t> rows) const override {
    model::image_extents(images(index), rows);
    return seq_length_;
  }
  void read(std::int64_t index, const SampleView& out) const override {
    model::write_image_sample(images(index), static_cast<unsigned>(index), out);
  }

 private:
  static std::vector<model::SmallGrid> images(std::int64_t index) {
    const auto side = [&](std::int64_t by) { return static_cast<std::int32_t>(2 + 2 * (index / by % 2)); };
    if (index % 3 == 0) return {};
    if (index % 3 == 1) return {{1, side(3), side(6)}};
    return {{1, 2, side(3)}, {2, 2, 2}};
  }
  std::int64_t seq_length_;
};

inline std::unique_ptr<DataSplits> make_images_of_rows(const options::NoOptions&, DataParts parts) {
  auto splits = std::make_unique<DataSplits>();
  splits->train = std::make_unique<ImagesOfRows>(parts.seq_length);
  splits->valid = std::make_unique<ImagesOfRows>(parts.seq_length);
  return splits;
}

/// Registers the type `images_of_rows`.
inline void register_images(DatasetRegistry& registry) {
  registry.add("images_of_rows", make_images_of_rows, "Rows of text and images.");
  registry.declare_fields("images_of_rows", [](const DatasetRegistry::Choice&) { return model::image_fields(); });
}

}  // namespace tessera::data
