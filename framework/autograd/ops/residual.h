#pragma once

#include "framework/autograd/tape.h"
#include "framework/kernels/dropout.h"

namespace tessera::autograd {

/// y = residual + dropout(x), or y = dropout(x) if `residual` is empty.
///
///   x, residual   [B, T, C]
///   y             [B, T, C] in the type of `residual`, or of x if there is no residual; in the memory of x if the
///                 types agree and no other handle refers to x
///
/// Keeps nothing: the backward pass draws the mask again, so `mask.sample_ids` must stay unchanged until then. With
/// dropout no other operation may use x: the backward pass throws BugError if it finds another gradient. Throws
/// ShapeError as dropout_add_forward (kernels/dropout.h).
Var dropout_add(Var x, const Var& residual, const kernels::DropoutMask& mask);

}  // namespace tessera::autograd
