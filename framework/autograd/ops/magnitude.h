#pragma once

#include <span>
#include <utility>

#include "framework/autograd/ops/low_rank.h"
#include "framework/autograd/tape.h"

namespace tessera::autograd {

// Weight-decomposed adapters (DoRA): y = m / n (W + s B A) x + bias, where n are the norms of the rows of W + s B A,
// which count as constants in the backward pass. Source: Liu et al., arXiv:2402.09353.

/// squares[row] += what the adapters add to the squared norms of the rows of w; see kernels::LowRankSquares.
///
///   w         [out, in], or some of its columns, as the factors a have them
///   squares   [out]
///
/// With `transposed` w is [in, out], a table whose columns are the rows of the formula. With `computes` false it takes
/// the same memory and computes nothing.
void add_low_rank_squares(Tape& tape, const Leaf& w, bool transposed, std::span<const LowRankFactors> factors,
                          std::span<double> squares, bool computes = true);

/// The magnitudes m of an adapter.
struct Magnitudes {
  Leaf* m = nullptr;                        ///< [outputs of the adapter], fp32
  std::span<const kernels::RowBlock> rows;  ///< which output of the layer each is for
};

/// y = v * m / norms + bias in the outputs of each adapter, v + bias in the others.
///
///   v       [.., out]   the result of the layer with its adapters, without bias; kept for the backward pass
///   norms   [out] floats; kept
///   bias    [out]; nullptr: none
///
/// The gradient of m is the sum over the rows of dy * v / norms. `magnitudes` and what they refer to must outlive the
/// backward pass. Throws ShapeError if extents do not match.
Var scale_by_magnitudes(Var v, std::span<const Magnitudes> magnitudes, Memory norms, Leaf* bias);

/// dropout(x) and x - dropout(x), which may be without use. Keeps nothing: the backward pass draws the mask again.
std::pair<Var, Var> split_by_dropout(const Var& x, const kernels::DropoutMask& mask);

}  // namespace tessera::autograd
