// Adam with L2 regularization: the weight decay is added to the gradient, so the moments see it.
// Source: Kingma & Ba, arXiv:1412.6980, algorithm 1, with the L2 term of torch.optim.Adam.

#include <algorithm>

#include "framework/optim/adam.h"

namespace tessera::optim {
namespace {

struct AdamL2Options {
  std::array<double, 2> betas = {0.9, 0.999};
  double eps = 1e-8;
};

void describe(options::Schema<AdamL2Options>& s) {
  s.when_changed(options::Change::told);
  describe_adam(s, "Decay of the running means of gradients and of their squares.",
                "Epsilon, added to the square root of the second moment.");
}

class AdamL2 final : public Optimizer {
 public:
  explicit AdamL2(const AdamL2Options& options) : o_(options) {}

  std::vector<std::string> slots() const override { return adam_slots(); }

  StepScalars prepared(StepScalars s) const override { return bias_corrected(o_.betas, s); }

  void update(const StepScalars& s, Block block) const override {
    if (s.skip) return;
    auto factors = adamw_factors(o_, s);
    factors.clip = 1;  // clipping and weight decay are applied to the gradient below, in this order
    factors.decay = 0;
    const auto clip = static_cast<float>(s.clip), decay = static_cast<float>(s.weight_decay);
    constexpr std::size_t at_once = 16 * block_elements;
    alignas(64) std::array<float, at_once> decayed;
    for (std::size_t first = 0; first < block.master.size(); first += at_once) {
      const auto part = block.part(first, std::min(at_once, block.master.size() - first));
      for (std::size_t i = 0; i < part.grad.size(); ++i) decayed[i] = clip * part.grad[i] + decay * part.master[i];
      kernels::adamw_update(factors, part.master, std::span<const float>(decayed).first(part.grad.size()),
                            part.slots[0], part.slots[1]);
    }
  }

 private:
  AdamL2Options o_;
};

std::unique_ptr<Optimizer> make_adam_l2(const AdamL2Options& o) { return std::make_unique<AdamL2>(o); }

}  // namespace

void register_adam_l2(OptimizerRegistry& registry) {
  registry.add("adam_l2", make_adam_l2, "Adam with L2 regularization: weight decay is added to the gradient.",
               {"AdamL2"});
}

}  // namespace tessera::optim
