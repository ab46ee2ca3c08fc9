#pragma once

#include <span>

#include "framework/autograd/tape.h"
#include "framework/kernels/dropout.h"
#include "framework/kernels/linear.h"
#include "framework/kernels/low_rank.h"

namespace tessera::autograd {

/// A low-rank adapter of a linear layer or of some of its outputs (Hu et al., arXiv:2106.09685).
struct LowRankFactors {
  Leaf* a = nullptr;  ///< [rank, in]
  Leaf* b = nullptr;  ///< [outputs of the adapter, rank]
  double scale = 1;
  std::span<const kernels::RowBlock> rows;  ///< which output of the layer each row of b is for
};

/// Largest number of adapters of one layer: queries, keys and values.
inline constexpr std::size_t most_adapters = 3;

/// y += scale * dropout(x) a^T b^T in the outputs of each adapter, in the memory of y if no other handle refers to it.
///
///   y       [.., out]   the result of the layer without adapters
///   x       [.., in]    its input; kept for the backward pass if an a is trained
///   masks   one for each adapter, or none: no dropout. Drawn again in the backward pass
///
/// Products with a and b are fp32; y is rounded once more to its type. Also keeps dropout(x) a^T, in fp32. `factors`
/// and what they refer to must outlive the backward pass. Throws ShapeError if extents do not match.
Var add_low_rank(Var y, const Var& x, std::span<const LowRankFactors> factors,
                 std::span<const kernels::DropoutMask> masks);

/// The adapters of one layer without a node of their own: for an operation that computes many layers, such as the
/// experts of a mixture, each on rows of its own. `masks` as above.
struct LowRankLayer {
  kernels::LinearExtents extents;  ///< of the layer, for these rows
  std::span<const LowRankFactors> factors;
  std::span<const kernels::DropoutMask> masks;
};
/// y += scale * dropout(x) a^T b^T. x [rows, in], y [rows, out].
void low_rank_forward(Tape& tape, const LowRankLayer& layer, const Tensor& x, const Tensor& y);
/// The gradients of the trained factors, and dx += that of x unless dx is empty. dy [rows, out]; x as in the forward
/// pass, not read if no factor is trained.
void low_rank_backward(Tape& tape, const LowRankLayer& layer, const Tensor& dy, const Tensor& x, const Tensor& dx);

}  // namespace tessera::autograd
