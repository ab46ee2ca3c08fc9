#pragma once

#include "framework/autograd/tape.h"
#include "framework/kernels/sample_noise.h"

namespace tessera::autograd {

// Random numbers within a router. Nothing is kept: the backward pass draws the numbers again, so `noise.sample_ids`
// must stay unchanged until then. Both functions throw ShapeError if the number of elements is no multiple of the
// number of samples in `noise`.

/// y = x u in fp32 for any type of x, with u uniform in [1 - eps, 1 + eps], drawn for each element. Source: Fedus et
/// al., arXiv:2101.03961; Megatron-LM core, whose product of 16-bit values and u is fp32 too.
Var jittered(const Var& x, double eps, const kernels::SampleNoise& noise);

/// Replaces `logits` by standard normal numbers of the same shape and type. The gradient of the result is passed to the
/// logits unchanged (straight-through), as in Megatron-LM core, so that all parameters of the router get gradients.
Var random_logits(const Var& logits, const kernels::SampleNoise& noise);

}  // namespace tessera::autograd
