#include "framework/optim/clipping.h"

namespace tessera {

void describe(Schema<ClippingOptions>& s) {
  s.option("clip_grad", &ClippingOptions::clip_grad, "Bound on the norm of all gradients together; 0: none.")
      .at_least(0);
}

double clip_coefficient(double norm, double clip_grad) {
  if (clip_grad <= 0) return 1;
  const double coefficient = clip_grad / (norm + 1e-6);
  return coefficient < 1 ? coefficient : 1;
}

}  // namespace tessera
