// Lion: the sign of an interpolation of momentum and gradient, with decoupled weight decay.
// Source: Chen et al., arXiv:2302.06675, program 1.

#include "framework/optim/optimizer.h"

namespace tessera::optim {
namespace {

struct LionOptions {
  std::array<double, 2> lion_betas = {0.9, 0.99};
};

void describe(options::Schema<LionOptions>& s) {
  s.when_changed(options::Change::told);
  s.option("lion_betas", &LionOptions::lion_betas,
           "Coefficients of the momentum: its weight in the update direction, and its decay per step.")
      .at_least(0)
      .below(1)
      .alias("lion_beta1", 0)
      .alias("lion_beta2", 1);
}

class Lion final : public Optimizer {
 public:
  explicit Lion(const LionOptions& options) : o_(options) {}

  std::vector<std::string> slots() const override { return {"exp_avg"}; }

  void update(const StepScalars& s, Block block) const override {
    if (s.skip) return;
    const auto f32 = [](double x) { return static_cast<float>(x); };
    const float mix = f32(o_.lion_betas[0]), fresh = f32(1 - o_.lion_betas[0]);
    const float keep = f32(o_.lion_betas[1]), take = f32(1 - o_.lion_betas[1]);
    const float clip = f32(s.clip), rate = f32(s.lr), shrink = f32(1 - s.lr * s.weight_decay);
    float* const weight = block.master.data();
    float* const mean = block.slots[0].data();
    const float* const grad = block.grad.data();
    // The sign is computed without branches, so that the loop is vectorized; sign(0) is 0.
    for (std::size_t i = 0; i < block.master.size(); ++i) {
      const float g = clip * grad[i], direction = mix * mean[i] + fresh * g;
      const float sign = static_cast<float>(direction > 0) - static_cast<float>(direction < 0);
      weight[i] = shrink * weight[i] - rate * sign;
      mean[i] = keep * mean[i] + take * g;
    }
  }

 private:
  LionOptions o_;
};

std::unique_ptr<Optimizer> make_lion(const LionOptions& o) { return std::make_unique<Lion>(o); }

}  // namespace

void register_lion(OptimizerRegistry& registry) {
  registry.add("lion", make_lion, "Lion: updates are the sign of the momentum.", {"Lion"});
}

}  // namespace tessera::optim
