#pragma once

#include <span>

#include "framework/kernels/elements.h"
#include "framework/kernels/threads.h"

namespace tessera::kernels {

/// Operands of layernorm_forward. The caller owns all memory.
struct LayerNormForward {
  Elements x;                         ///< [rows, width]
  std::span<const float> gain, bias;  ///< [width]; bias may be empty: no bias
  double eps;
  float gain_offset;  ///< added to the gain: 1 for a zero-centred one (Megatron's apply_layernorm_1p), else 0
  MutableElements y;  ///< [rows, width], written; may be x
  std::span<float> mean, inv_std;  ///< [rows], written: mean and 1 / sqrt(var + eps), needed by the backward pass
};

/// Layer normalization over the last axis: y = (x - mean) / sqrt(var + eps) * (gain + gain_offset) + bias.
///
/// Two passes over a row: the variance is computed from deviations, so that a large mean does not cancel it. Sums run
/// in an order that depends on `width` only. x and y, and their gradients, are of any type; a row is computed in fp32
/// and rounded once. Throws ShapeError if a size differs from these shapes. Source: Ba et al., arXiv:1607.06450.
void layernorm_forward(Threads& threads, const LayerNormForward& of);

/// Operands of layernorm_backward.
struct LayerNormBackward {
  Elements dy, x;                        ///< [rows, width]; x as given to the forward pass
  std::span<const float> gain;           ///< as given to the forward pass
  float gain_offset;                     ///< the same
  std::span<const float> mean, inv_std;  ///< [rows], as the forward pass wrote them
  MutableElements dx;  ///< [rows, width], written, or added to when `add`; may be dy when `add` is false
  bool add;
  std::span<float> dgain, dbias;  ///< [width], added to; dbias may be empty
};

/// Gradients of layernorm_forward.
///
/// The rows are divided into at most 64 ranges by their number only; the partial sums of dgain and dbias are added in
/// double in the order of the ranges, so results do not depend on the number of threads. Throws as layernorm_forward.
void layernorm_backward(Threads& threads, const LayerNormBackward& of);

/// Operands of rmsnorm_forward.
struct RmsNormForward {
  Elements x;                   ///< [rows, width]
  std::span<const float> gain;  ///< [width]
  double eps;
  float gain_offset;         ///< as of LayerNormForward
  MutableElements y;         ///< [rows, width], written; may be x
  std::span<float> inv_rms;  ///< [rows], written: 1 / sqrt(mean(x^2) + eps), needed by the backward pass
};

/// Root mean square normalization: y = x / sqrt(mean(x^2) + eps) * (gain + gain_offset). Order of sums, types and
/// errors as of layernorm_forward. Source: Zhang & Sennrich, arXiv:1910.07467.
void rmsnorm_forward(Threads& threads, const RmsNormForward& of);

/// Operands of rmsnorm_backward: those of LayerNormBackward, without what belongs to mean and bias.
struct RmsNormBackward {
  Elements dy, x;
  std::span<const float> gain;
  float gain_offset;
  std::span<const float> inv_rms;
  MutableElements dx;
  bool add;
  std::span<float> dgain;
};

/// Gradients of rmsnorm_forward. Order of sums and errors as of layernorm_backward.
void rmsnorm_backward(Threads& threads, const RmsNormBackward& of);

}  // namespace tessera::kernels
