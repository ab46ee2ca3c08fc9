#pragma once

#include "framework/autograd/tape.h"

namespace tessera {

/// Layer normalisation over the last extent, gain [width] + gain_offset, bias [width] or nullptr. Keeps x, mean and
/// inverse deviation.
Var layernorm(const Var& x, Leaf& gain, Leaf* bias, double eps, float gain_offset);

/// x / rms(x) * (gain + gain_offset) over the last extent. Keeps x and the inverse root.
Var rmsnorm(const Var& x, Leaf& gain, double eps, float gain_offset);

}  // namespace tessera
