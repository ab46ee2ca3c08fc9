#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "framework/checkpoint/weight_source.h"

namespace tessera::training {

/// The weights of a dense model, presented as those of a model with experts: the feed-forward network of a layer is
/// used for every expert of that layer. Source: Megatron-LM core, upcycling_utils; Komatsuzaki et al.,
/// arXiv:2212.05055.
class UpcycledWeights final : public checkpoint::WeightSource {
 public:
  /// `all`: the weights of the model with experts, except those that a dense model does not have (see upcycled()).
  /// `dense` must outlive this object. Throws ConfigError if `dense` has experts.
  UpcycledWeights(const checkpoint::WeightSource& dense, std::span<const checkpoint::TensorRange> all);

  const std::filesystem::path& folder() const override { return dense_.folder(); }
  std::vector<std::string> names() const override;
  bool has(const std::string& name) const override { return dense_.has(name_there(name)); }
  Shape shape(const std::string& name) const override { return dense_.shape(name_there(name)); }
  DType dtype(const std::string& name) const override { return dense_.dtype(name_there(name)); }
  void read(const std::string& name, const Tensor& into) const override { dense_.read(name_there(name), into); }
  std::string_view storage_type(const std::string& name) const override {
    return dense_.storage_type(name_there(name));
  }
  void read_box(const checkpoint::TensorRange& into) const override;

 private:
  const std::string& name_there(const std::string& name) const;

  const checkpoint::WeightSource& dense_;
  std::map<std::string, std::string> of_experts_;           ///< name of an expert's weight -> name of the dense weight
  std::map<std::string, std::vector<std::string>> copies_;  ///< name of a dense weight -> names of experts' weights
};

/// Returns those of `weights` that a dense checkpoint can fill: all except routers, which keep their initial values.
std::vector<checkpoint::TensorRange> upcycled(std::span<const checkpoint::TensorRange> weights);

/// The name of a weight of an expert in `source`; empty: it is a dense model.
std::string expert_in(const checkpoint::WeightSource& source);

/// Throws ConfigError that names moe_use_upcycling if a layer of `weights` has experts but the source has a dense
/// network in that layer.
void refuse_dense(const checkpoint::WeightSource& source, std::span<const checkpoint::TensorRange> weights);

}  // namespace tessera::training
