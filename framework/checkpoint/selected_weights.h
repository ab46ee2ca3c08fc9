#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "framework/checkpoint/weight_source.h"

namespace tessera::checkpoint {

/// Those weights of a source that have certain names.
class SelectedWeights final : public WeightSource {
 public:
  using Selects = std::function<bool(const std::string& name)>;
  SelectedWeights(std::shared_ptr<const WeightSource> all, Selects selects)
      : all_(std::move(all)), selects_(std::move(selects)) {}

  const std::filesystem::path& folder() const override { return all_->folder(); }
  std::vector<std::string> names() const override {
    auto names = all_->names();
    std::erase_if(names, [&](const auto& name) { return !selects_(name); });
    return names;
  }
  bool has(const std::string& name) const override { return selects_(name) && all_->has(name); }
  Shape shape(const std::string& name) const override { return all_->shape(name); }
  DType dtype(const std::string& name) const override { return all_->dtype(name); }
  void read(const std::string& name, const Tensor& into) const override { all_->read(name, into); }
  void read_box(const TensorRange& into) const override { all_->read_box(into); }
  std::optional<MappedTensor> map(const TensorRange& range) const override { return all_->map(range); }
  std::optional<StoredMatrix> stored(const TensorRange& range) const override { return all_->stored(range); }

 private:
  std::shared_ptr<const WeightSource> all_;
  Selects selects_;
};

}  // namespace tessera::checkpoint
