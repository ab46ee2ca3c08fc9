// Decay with the inverse square root of the samples consumed, scaled so that it starts at learning_rate when the
// warm-up ends, and not below min_lr. Source: Vaswani et al., arXiv:1706.03762, section 5.3.

#include <algorithm>
#include <cmath>

#include "framework/schedule/schedule.h"

namespace tessera::schedule {
namespace {

class InverseSquareRoot final : public Decay {
 public:
  double left(double done, double all) const override { return 1 - done / all; }
  double rate(const DecayPosition& way) const override {
    if (way.consumed > way.decay) return way.lowest;
    const double warmup = std::max(way.warmup, 1.0), consumed = std::max(way.consumed, 1.0);
    return std::max(way.lowest, way.highest * std::sqrt(warmup) / std::sqrt(consumed));
  }
};

std::unique_ptr<Decay> make_inverse_square_root(const options::NoOptions&, RunLength) {
  return std::make_unique<InverseSquareRoot>();
}

}  // namespace

void register_inverse_square_root(DecayRegistry& registry) {
  registry.add("inverse-square-root", make_inverse_square_root,
               "Decay with the inverse square root of the consumed samples.", {"inverse_square_root"});
}

}  // namespace tessera::schedule
