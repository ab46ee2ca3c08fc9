#pragma once

#include "framework/options/schema.h"

namespace tessera {

/// Bound on the norm of all gradients together; in optimizer_config.
struct ClippingOptions {
  double clip_grad = 1.0;
};
void describe(Schema<ClippingOptions>& s);

/// The factor that brings gradients of the global L2 norm `norm` to at most `clip_grad`:
/// min(1, clip_grad / (norm + 1e-6)). It goes into StepScalars::clip.
///
/// 1 when `clip_grad` is 0 (clipping is off) and when `norm` is NaN; 0 when it is infinite: the caller
/// looks at the norm first and skips or ends such a step. Source: Megatron-LM; Pascanu et al., arXiv:1211.5063.
double clip_coefficient(double norm, double clip_grad);

}  // namespace tessera
