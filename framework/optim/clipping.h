#pragma once

#include "framework/options/schema.h"

namespace tessera::optim {

/// Options of optimizer_config about gradient clipping.
struct ClippingOptions {
  // Maximum of the global L2 norm of all gradients; 0: no clipping.
  double clip_grad = 1.0;
};
/// Declares the options.
void describe(options::Schema<ClippingOptions>& s);

/// The factor that scales gradients with the global L2 norm `norm` down to a norm of at most `clip_grad`:
/// min(1, clip_grad / (norm + 1e-6)). It is a factor of StepScalars::clip.
///
/// Returns 1 if `clip_grad` is not above 0 (no clipping) or `norm` is NaN, and 0 if `norm` is infinite. The caller must
/// therefore check the norm first, and skip the step or end the run if it is not finite. Source: Megatron-LM;
/// Pascanu et al., arXiv:1211.5063.
double clip_coefficient(double norm, double clip_grad);

}  // namespace tessera::optim
