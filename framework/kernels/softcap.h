#pragma once

#include <span>

#include "framework/kernels/threads.h"

namespace tessera {

/// y = cap * tanh(x / cap), elementwise; y may be x. Source: Gemma 2, arXiv:2408.00118.
void softcap_forward(Threads& threads, double cap, std::span<const float> x, std::span<float> y);

/// dx = dy * (1 - (y / cap)^2): the gradient from what the forward pass gave. dx may be dy.
void softcap_backward(Threads& threads, double cap, std::span<const float> dy, std::span<const float> y,
                      std::span<float> dx);

}  // namespace tessera
