#include "framework/optim/clipping.h"

namespace tessera::optim {

void describe(options::Schema<ClippingOptions>& s) {
  s.when_changed(options::Change::told);
  s.option("clip_grad", &ClippingOptions::clip_grad,
           "Maximum L2 norm of all gradients together; 0 or negative: no clipping.")
      .at_least(-1e30)
      .at_most(1e30);
}

double clip_coefficient(double norm, double clip_grad) {
  if (clip_grad <= 0) return 1;
  // `coefficient < 1` is false for NaN, so the gradients then stay as they are and the caller sees the NaN.
  const double coefficient = clip_grad / (norm + 1e-6);
  return coefficient < 1 ? coefficient : 1;
}

}  // namespace tessera::optim
