// Constant learning rate after the warm-up; the decay length has no effect.

#include "framework/schedule/schedule.h"

namespace tessera::schedule {
namespace {

class Constant final : public Decay {
 public:
  double left(double, double) const override { return 1; }
  double rate(const DecayPosition& way) const override { return way.highest; }
};

std::unique_ptr<Decay> make_constant(const options::NoOptions&, RunLength) { return std::make_unique<Constant>(); }

}  // namespace

void register_constant(DecayRegistry& registry) { registry.add("constant", make_constant, "Constant learning rate."); }

}  // namespace tessera::schedule
