#pragma once

#include "framework/autograd/tape.h"
#include "framework/kernels/dropout.h"

namespace tessera::autograd {

/// y = residual + dropout(x); an empty `residual`: dropout alone.
///
///   x, residual   [B, T, C]   x must have no other use
///   result        in the type of `residual` (of x if there is none); in the memory of x if the types agree and no
///                 other handle refers to it
///
/// Keeps nothing: the backward pass draws the mask again, so `mask.sample_ids` must stay unchanged until then.
Var dropout_add(Var x, const Var& residual, const kernels::DropoutMask& mask);

}  // namespace tessera::autograd
