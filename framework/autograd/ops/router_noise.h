#pragma once

#include "framework/autograd/tape.h"
#include "framework/kernels/sample_noise.h"

namespace tessera::autograd {

// Random numbers within a router. Nothing is kept: the backward pass draws the numbers again, so `noise.sample_ids`
// must stay unchanged until then. Both throw ShapeError if the elements do not divide into the samples of `noise`.

/// y = x u in fp32 whatever the type of x, with u uniform in [1 - eps, 1 + eps] for each element. Source: Fedus et al.,
/// arXiv:2101.03961; Megatron-LM core, whose product of 16-bit values and u is fp32 too.
Var jittered(const Var& x, double eps, const kernels::SampleNoise& noise);

/// Standard normal numbers in the place of `logits`, of their shape and type. The gradient of the result is passed on
/// to the logits unchanged (straight-through), as in Megatron-LM core, so that all parameters of a router are trained.
Var random_logits(const Var& logits, const kernels::SampleNoise& noise);

}  // namespace tessera::autograd
