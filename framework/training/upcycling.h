#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "framework/checkpoint/weight_source.h"

namespace tessera::training {

/// The weights of a dense model as those of a model with experts: the feed-forward network of a layer stands for every
/// expert of that layer. Source: Megatron-LM core, upcycling_utils; Komatsuzaki et al., arXiv:2212.05055.
class UpcycledWeights final : public checkpoint::WeightSource {
 public:
  /// `all`: the weights of the model with experts without those that a dense model has nothing for (see upcycled).
  /// `dense` must outlive this. Throws ConfigError if it has experts.
  UpcycledWeights(const checkpoint::WeightSource& dense, std::span<const checkpoint::TensorRange> all);

  const std::filesystem::path& folder() const override { return dense_.folder(); }
  std::vector<std::string> names() const override;
  bool has(const std::string& name) const override { return dense_.has(name_there(name)); }
  Shape shape(const std::string& name) const override { return dense_.shape(name_there(name)); }
  DType dtype(const std::string& name) const override { return dense_.dtype(name_there(name)); }
  void read(const std::string& name, const Tensor& into) const override { dense_.read(name_there(name), into); }
  void read_box(const checkpoint::TensorRange& into) const override;

 private:
  const std::string& name_there(const std::string& name) const;

  const checkpoint::WeightSource& dense_;
  std::map<std::string, std::string> of_experts_;           ///< names of experts' weights -> names of the dense ones
  std::map<std::string, std::vector<std::string>> copies_;  ///< names of dense weights -> those of experts
};

/// Of `weights` those that a dense checkpoint can fill: all but routers, which keep their initial values.
std::vector<checkpoint::TensorRange> upcycled(std::span<const checkpoint::TensorRange> weights);

/// Throws ConfigError, naming moe_use_upcycling, if a layer of `weights` has experts and the source has a dense network
/// there.
void refuse_dense(const checkpoint::WeightSource& source, std::span<const checkpoint::TensorRange> weights);

}  // namespace tessera::training
