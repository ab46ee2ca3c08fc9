#include "framework/optim/adam.h"

#include <cmath>

namespace tessera::optim {

std::vector<std::string> adam_slots() { return {"exp_avg", "exp_avg_sq"}; }

StepScalars bias_corrected(const std::array<double, 2>& betas, StepScalars s) {
  for (std::size_t k = 0; k < 2; ++k) s.bias_correction[k] = 1 - std::pow(betas[k], static_cast<double>(s.step));
  return s;
}

}  // namespace tessera::optim
