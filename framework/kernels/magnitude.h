#pragma once

#include <cstdint>
#include <span>

#include "framework/kernels/elements.h"
#include "framework/kernels/low_rank.h"
#include "framework/kernels/threads.h"
#include "framework/kernels/weight.h"

namespace tessera::kernels {

// Weight-decomposed adapters (DoRA): the outputs of W + s B A, divided by the norms of its rows and multiplied by
// trained magnitudes. Source: Liu et al., arXiv:2402.09353. Squares are summed in double. Results do not depend on the
// number of threads.

/// squares[r] = the square of the norm of row r of w [squares.size(), width].
void row_squares(Threads& threads, const Weight& w, std::int64_t width, std::span<double> squares);

/// squares[c] = the square of the norm of column c of w [rows, squares.size()]. `partial` has column_parts(rows) times
/// squares.size() elements, which are overwritten.
void column_squares(Threads& threads, const Weight& w, std::int64_t rows, std::span<double> partial,
                    std::span<double> squares);
std::int64_t column_parts(std::int64_t rows);

/// What an adapter adds to the squared norms of the rows of W + s B A: 2 s (W A^T) . B + s^2 B (A A^T) . B for each
/// row, linear in the columns of W, so that parts of the columns can be added up.
///
///   rows   which row of W each row of B is for
///   aw     [rank, out]         A W^T
///   aa     [rank, rank]        A A^T
///   b      [rows of B, rank]
struct LowRankSquares {
  std::span<const RowBlock> rows;
  std::int64_t out, rank;
  double scale;
  std::span<const float> aw, aa, b;
};
/// squares[row of W] += its part of `of`.
void add_low_rank_squares(Threads& threads, const LowRankSquares& of, std::span<double> squares);

/// factors[row of W] = m / norms for the rows of an adapter, 0 where the norm is 0; other factors stay unchanged.
void magnitude_factors(Threads& threads, std::span<const RowBlock> rows, std::span<const float> m,
                       std::span<const float> norms, std::span<float> factors);

/// y[row, o] = v[row, o] * factors[o] + bias[o]; y may be v.
///
///   v, y            [rows, out]
///   factors, bias   [out]; bias may be empty
void scale_columns(Threads& threads, const Elements& v, std::span<const float> factors, std::span<const float> bias,
                   const MutableElements& y);

/// y = a - b, elementwise; y may be a or b.
void subtract(Threads& threads, const Elements& a, const Elements& b, const MutableElements& y);

/// sums[o] = the sum over the rows of x * y, both [rows, sums.size()]. Rows are summed in fp32 in groups of 64, and the
/// groups in double.
void dot_columns(Threads& threads, const Elements& x, const Elements& y, std::span<float> sums);

/// dm += sums / norms, for the rows of an adapter: the gradient of m from the sums of dy * v.
void magnitude_backward(Threads& threads, std::span<const RowBlock> rows, std::span<const float> sums,
                        std::span<const float> norms, std::span<float> dm);

}  // namespace tessera::kernels
