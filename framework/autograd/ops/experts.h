#pragma once

#include <functional>

#include "framework/autograd/ops/router.h"
#include "framework/autograd/tape.h"
#include "framework/kernels/linear.h"

namespace tessera::autograd {

/// The feed-forward network that every expert of a layer has, each with weights of its own.
struct ExpertNetwork {
  kernels::Activation act = kernels::Activation::silu;
  bool gated = true;              ///< fc1 has the rows [gate; up]
  bool weights_on_input = false;  ///< the weight of a choice multiplies the expert's input, not its activation
};

/// Sees the output of one expert, [rows of it, h] fp32, times the weights of its choices; valid during the call only.
using ExpertTap = std::function<void(std::size_t expert, const Tensor& output)>;

/// y[t] = sum over the choices k of token t of fc2_e (w act(fc1_e x[t])), with e the chosen expert and w its weight; a token
/// without a choice that was kept gets zeros.
///
///   x          [.., h]   kept for the backward pass
///   fc1[e]     [F, h], or [2 F, h] for a gated network
///   fc2[e]     [h, F]
///   y          [.., h] in the tape's compute type; in 16 bits each choice is computed in fp32 from the activation on, and
///              the sum is rounded once
///
/// Keeps, besides x, what is before the activation for each choice; the activation is computed again in the backward
/// pass. `fc1` and `fc2` must stay valid until the backward pass is done. Experts that no token chose take part with a zero
/// gradient. `tap`, if there is one, is called for each expert that has rows, in the forward pass. Throws ShapeError if
/// the extents do not match.
Var experts(const Var& x, const ExpertChoices& choices, std::span<Leaf* const> fc1, std::span<Leaf* const> fc2,
            const ExpertNetwork& network, const ExpertTap& tap = {});

}  // namespace tessera::autograd
