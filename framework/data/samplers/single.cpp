// Sample after sample, as Megatron-LM's MegatronPretrainingSampler.

#include "framework/data/dataset.h"

namespace tessera::data {
namespace {

class Single final : public Sampler {
 public:
  explicit Single(const SamplerParts& parts) : samples_(parts.samples) {}

  std::int64_t index(std::int64_t consumed) const override {
    if (consumed >= samples_)
      throw ConfigError(text("dataloader_type single: sample ", consumed, " is wanted, but the dataset has ", samples_,
                             "; ask for fewer steps, or choose dataloader_type cyclic"));
    return consumed;
  }

 private:
  std::int64_t samples_;
};

std::unique_ptr<Sampler> make_single(const options::NoOptions&, SamplerParts parts) {
  return std::make_unique<Single>(parts);
}

}  // namespace

std::unique_ptr<Sampler> single_pass(const Dataset& dataset) {
  return std::make_unique<Single>(SamplerParts{dataset.samples(), 1, 1});
}

void register_single(SamplerRegistry& registry) {
  registry.add("single", make_single, "Sequential: each sample once, in dataset order.");
}

}  // namespace tessera::data
