#include "tests/golden/vision_batches.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "framework/base/error.h"
#include "framework/checkpoint/safetensors.h"
#include "framework/model/vision_items.h"

namespace tessera {

struct VisionBatchesOptions {
  std::string golden_images_file;
};

void describe(options::Schema<VisionBatchesOptions>& s) {
  s.option("golden_images_file", &VisionBatchesOptions::golden_images_file, "batch.safetensors of a case.");
}

namespace golden {
namespace {

BatchFields fields_of(std::int64_t patch_width) {
  auto fields = token_fields();
  for (auto& field : fields)
    if (field.name == "positions") field.width = 3;
  fields.push_back({model::pixel_field, DType::float32, FieldExtent::own, patch_width, 1 << 16});
  fields.push_back({model::grid_field, DType::int32, FieldExtent::own, 3, 64});
  return fields;
}

class VisionBatches final : public data::Dataset {
 public:
  explicit VisionBatches(const VisionBatchesOptions& o) : file_(o.golden_images_file) {
    const auto& shape = file_.shape("tokens");
    steps_ = shape[0];
    batch_ = shape[1];
    length_ = shape[2];
    width_ = file_.shape("pixel_values").width();
    fields_ = fields_of(width_);
    if (file_.has("grid_thw"))
      read_items(file_.tensor("grid_thw").as<std::int64_t>(), file_.tensor("items_per_sample").as<std::int64_t>());
    else
      repeat_items(file_.tensor("image_grid_thw").as<std::int64_t>());
  }

  std::int64_t samples() const override { return steps_ * batch_; }
  std::int64_t seq_length() const override { return length_; }
  const BatchFields& fields() const override { return fields_; }
  bool extents_vary() const override { return true; }
  std::int64_t extents(std::int64_t index, std::span<std::int64_t> rows) const override {
    const auto& own = samples_[static_cast<std::size_t>(index)];
    rows[rows.size() - 2] = own.patches;
    rows[rows.size() - 1] = static_cast<std::int64_t>(own.grids.size()) / 3;
    return length_;
  }
  void read(std::int64_t index, const SampleView& out) const override {
    const auto& own = samples_[static_cast<std::size_t>(index)];
    copy(file_.tensor("tokens").as<std::int64_t>(), index * length_, out.tokens);
    copy(file_.tensor("labels").as<std::int64_t>(), index * length_, out.labels);
    copy(file_.tensor("loss_mask").floats(), index * length_, out.loss_mask);
    std::ranges::fill(out.document_start, 0);
    for (std::int64_t axis = 0; axis < 3; ++axis)
      copy(file_.tensor("position_ids").as<std::int64_t>(),
           ((index / batch_ * 3 + axis) * batch_ + index % batch_) * length_,
           out.positions.subspan(static_cast<std::size_t>(axis * length_), static_cast<std::size_t>(length_)));
    copy(file_.tensor("pixel_values").floats(), own.first_patch * width_, out.field<float>(model::pixel_field));
    std::ranges::copy(own.grids, out.field<std::int32_t>(model::grid_field).begin());
  }

 private:
  struct Sample {
    std::vector<std::int32_t> grids;
    std::int64_t first_patch = 0, patches = 0;
  };

  void add(std::span<const std::int64_t> grids) {
    auto& sample = samples_.emplace_back();
    sample.first_patch = patches_;
    for (std::size_t i = 0; i < grids.size(); i += 3) sample.patches += grids[i] * grids[i + 1] * grids[i + 2];
    for (const auto one : grids) sample.grids.push_back(static_cast<std::int32_t>(one));
    patches_ += sample.patches;
  }
  /// The items of each sample of all steps, one after the other.
  void read_items(std::span<const std::int64_t> grids, std::span<const std::int64_t> items) {
    std::size_t first = 0;
    for (const auto count : items) {
      add(grids.subspan(3 * first, 3 * static_cast<std::size_t>(count)));
      first += static_cast<std::size_t>(count);
    }
  }
  /// The same images in each step, one for each sample.
  void repeat_items(std::span<const std::int64_t> grids) {
    for (std::int64_t step = 0; step < steps_; ++step)
      for (std::int64_t b = 0; b < batch_; ++b) add(grids.subspan(3 * static_cast<std::size_t>(b), 3));
  }
  template <class From, class To>
  static void copy(std::span<From> all, std::int64_t first, std::span<To> out) {
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<To>(all[static_cast<std::size_t>(first) + i]);
  }

  checkpoint::SafetensorsReader file_;
  std::int64_t steps_ = 0, batch_ = 0, length_ = 0, width_ = 0, patches_ = 0;
  BatchFields fields_;
  std::vector<Sample> samples_;
};

std::unique_ptr<data::DataSplits> make_vision_batches(const VisionBatchesOptions& o, data::DataParts) {
  auto splits = std::make_unique<data::DataSplits>();
  splits->train = std::make_unique<VisionBatches>(o);
  return splits;
}

}  // namespace

void add_vision_batches(data::DatasetRegistry& registry) {
  registry.add("golden_images", make_vision_batches, "The batches of a golden case with images.");
  registry.declare_fields("golden_images", [](const data::DatasetRegistry::Choice& choice) {
    const checkpoint::SafetensorsReader file(choice.options<VisionBatchesOptions>()->golden_images_file);
    return fields_of(file.shape("pixel_values").width());
  });
}

}  // namespace golden
}  // namespace tessera
