#pragma once

#include "framework/autograd/tape.h"
#include "framework/kernels/dropout.h"

namespace tessera {

/// residual + dropout(x), in the memory of x when nobody else looks at it. Keeps nothing: the mask is drawn again in
/// the backward pass, so `mask.sample_ids` must stay until then. An empty `residual`: dropout alone.
Var dropout_add(Var x, const Var& residual, const DropoutMask& mask);

}  // namespace tessera
