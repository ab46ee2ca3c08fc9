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
  float gain_offset;  ///< added to the gain: 1 for a zero-centred gain (Megatron's apply_layernorm_1p), else 0
  MutableElements y;  ///< [rows, width], written; may be x
  std::span<float> mean, inv_std;  ///< [rows], written: mean and 1 / sqrt(var + eps), needed by the backward pass
};

/// Layer normalization over the last axis: y = (x - mean) / sqrt(var + eps) * (gain + gain_offset) + bias.
///
/// Two passes over a row: the variance is computed from deviations from the mean, which avoids cancellation if the mean
/// is large. Sums run in an order that depends on `width` only, so results do not depend on the number of threads. x, y
/// and their gradients may have different types; a row is computed in fp32 and rounded once. Throws ShapeError if a
/// size differs from these shapes. Source: Ba et al., arXiv:1607.06450.
void layernorm_forward(Threads& threads, const LayerNormForward& of);

/// Operands of layernorm_backward. The caller owns all memory.
struct LayerNormBackward {
  Elements dy, x;                        ///< [rows, width]; x is the input of the forward pass
  std::span<const float> gain;           ///< [width], as in the forward pass
  float gain_offset;                     ///< as in the forward pass
  std::span<const float> mean, inv_std;  ///< [rows], as written by the forward pass
  MutableElements dx;  ///< [rows, width], overwritten, or added to if `add`; may be dy if `add` is false
  bool add;
  std::span<float> dgain, dbias;  ///< [width], always added to; dbias may be empty: no bias
};

/// Gradients of layernorm_forward.
///
/// The rows are divided into at most 64 ranges, which depend on the number of rows only. The partial sums of dgain and
/// dbias are added in double in the order of the ranges, so results do not depend on the number of threads. Throws as
/// layernorm_forward.
void layernorm_backward(Threads& threads, const LayerNormBackward& of);

/// Operands of rmsnorm_forward.
struct RmsNormForward {
  Elements x;                   ///< [rows, width]
  std::span<const float> gain;  ///< [width]
  double eps;
  float gain_offset;         ///< as in LayerNormForward
  MutableElements y;         ///< [rows, width], written; may be x
  std::span<float> inv_rms;  ///< [rows], written: 1 / sqrt(mean(x^2) + eps), needed by the backward pass
};

/// Root mean square normalization: y = x / sqrt(mean(x^2) + eps) * (gain + gain_offset). Order of sums, types and
/// errors are those of layernorm_forward. Source: Zhang & Sennrich, arXiv:1910.07467.
void rmsnorm_forward(Threads& threads, const RmsNormForward& of);

/// Operands of rmsnorm_backward. The caller owns all memory.
struct RmsNormBackward {
  Elements dy, x;                  ///< [rows, width]; x is the input of the forward pass
  std::span<const float> gain;     ///< [width], as in the forward pass
  float gain_offset;               ///< as in the forward pass
  std::span<const float> inv_rms;  ///< [rows], as written by the forward pass
  MutableElements dx;              ///< [rows, width], overwritten, or added to if `add`; may be dy if `add` is false
  bool add;
  std::span<float> dgain;  ///< [width], always added to
};

/// Gradients of rmsnorm_forward. Order of sums and errors are those of layernorm_backward.
void rmsnorm_backward(Threads& threads, const RmsNormBackward& of);

}  // namespace tessera::kernels
