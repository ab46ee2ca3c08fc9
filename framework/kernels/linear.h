#pragma once

#include <cstdint>
#include <span>

#include "framework/kernels/elements.h"
#include "framework/kernels/threads.h"
#include "framework/kernels/weight.h"

namespace tessera::kernels {

/// Extents of a linear layer, y = x w^T + bias. The functions of this file share these shapes, all row-major and dense:
///
///   x, dx   [rows, in]     rows = tokens of the micro-batch
///   w, dw   [out, in]      as Megatron and PyTorch store it
///   y, dy   [rows, out]
///   bias    [out]          or empty: no bias
///
/// The weight w may lie in a file in blocks of rows (weight.h), as a factor of the first two products below.
///
/// Elements are float32, bfloat16 or float16; sums are fp32 and each result is rounded once. If both factors of a
/// product are bfloat16 and the instruction set multiplies such (cpu.h), they are multiplied as they are, else they are
/// widened. The blocking depends on rows, in, out and the types only, so results do not depend on the number of
/// threads. Outputs must not overlap inputs. Each function throws ShapeError if an operand has another size.
struct LinearExtents {
  std::int64_t rows, in, out;
};

/// Activation functions; activation.h has the formulas. In linear_activation_forward the function is applied to each
/// block of y while the block is in cache.
enum class Activation { none, gelu_tanh, gelu_erf, quick_gelu, silu, relu, squared_relu };

/// y = x w^T + bias.
void linear_forward(Threads& threads, LinearExtents e, const Elements& x, const Weight& w, std::span<const float> bias,
                    const MutableElements& y);

/// Whether a product with results in `type`, a 16-bit type, multiplies floats: elements of its factors are rounded to
/// `type` before, so an fp32 weight can be rounded while it is packed. false: the instruction set multiplies `type`.
bool multiplies_floats(DType type);

/// y += x w^T.
void linear_add(Threads& threads, LinearExtents e, const Elements& x, const Elements& w, const MutableElements& y);

/// y = act(x w^T + bias), for any act except `none`; the function of the sum as `before` holds it, rounded to its type,
/// so that activation_forward of `before` gives the same bits.
///
///   before   [rows, out]   written: x w^T + bias, which the backward pass needs; of 16 bits if y is
void linear_activation_forward(Threads& threads, LinearExtents e, Activation act, const Elements& x, const Weight& w,
                               std::span<const float> bias, const MutableElements& before, const MutableElements& y);

/// Gradient with respect to x: dx = dy w, or dx += dy w when `add`.
void linear_backward_input(Threads& threads, LinearExtents e, const Elements& dy, const Weight& w,
                           const MutableElements& dx, bool add);

/// Gradient with respect to w: dw = dy^T x, or dw += dy^T x when `add`. dw is usually the fp32 main gradient (gradient
/// accumulation fusion in Megatron's terms).
void linear_backward_weight(Threads& threads, LinearExtents e, const Elements& dy, const Elements& x,
                            std::span<float> dw, bool add);

/// The operands of one layer of a group: of linear_forward x, w, y; of linear_backward_input dy, w, dx; of
/// linear_backward_weight dy, x, dw.
struct LinearOperands {
  LinearExtents extents;
  Elements left;
  Weight right;  ///< x: dense
  MutableElements result;
  bool add = false;  ///< to the result, else it is overwritten
};
enum class LinearProduct { forward, backward_input, backward_weight };

/// One of the three functions above, without bias, for each layer of a group whose results do not overlap, such as the
/// experts of a layer: the threads share the work of all.
void linear_group(Threads& threads, LinearProduct product, std::span<const LinearOperands> layers);

/// The three products with factors and sums in double; each result is rounded once.
void linear_forward_in_double(Threads& threads, LinearExtents e, const Elements& x, const Weight& w,
                              const MutableElements& y);
void linear_backward_input_in_double(Threads& threads, LinearExtents e, const Elements& dy, const Weight& w,
                                     const MutableElements& dx, bool add);
void linear_backward_weight_in_double(Threads& threads, LinearExtents e, const Elements& dy, const Elements& x,
                                      std::span<float> dw, bool add);

/// y += bias in every row. For a row-parallel layer, whose y must first be summed over the ranks.
void linear_add_bias(Threads& threads, std::int64_t rows, std::int64_t out, std::span<const float> bias,
                     std::span<float> y);

/// Gradient with respect to the bias, accumulated: dbias += sum of the rows of dy. Rows are summed in fp32 in groups of
/// 64, and the groups in double.
void linear_backward_bias(Threads& threads, std::int64_t rows, std::int64_t out, const Elements& dy,
                          std::span<float> dbias);

}  // namespace tessera::kernels
