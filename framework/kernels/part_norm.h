#pragma once

#include <cstdint>
#include <span>

#include "framework/kernels/threads.h"

namespace tessera::kernels {

// RMS norm of rows of which this rank may have a part only: [rows, width] here, wider on all ranks together. Sums over
// whole rows are the caller's: it adds up the sums of the parts. Sums run in an order that depends on `width` only, so
// results do not depend on the number of threads. All throw ShapeError if a size differs from the shapes here.

/// sums[r] = sum of x^2 over this part of row r.
///
///   x      [rows, width]
///   sums   [rows]          written
void part_squares(Threads& threads, std::span<const float> x, std::span<double> sums);

/// inverse[r] = 1 / sqrt(squares[r] / width + eps), with the squares and the width of whole rows.
void inverse_rms(Threads& threads, std::span<const double> squares, std::int64_t width, double eps,
                 std::span<float> inverse);

/// Operands of the functions below. Owns nothing.
struct PartNorm {
  std::span<const float> x;        ///< [rows, width]
  std::span<const float> gain;     ///< [width]
  float gain_offset;               ///< added to the gain: 1 for a zero-centred gain, else 0
  std::span<const float> inverse;  ///< [rows] by inverse_rms
};

/// y = x * inverse * (gain + gain_offset); y [rows, width] may be x.
void part_rmsnorm_forward(Threads& threads, const PartNorm& of, std::span<float> y);

/// sums[r] = sum of dy * (gain + gain_offset) * x over this part of row r. of.inverse is not used.
void part_products(Threads& threads, const PartNorm& of, std::span<const float> dy, std::span<double> sums);

/// Gradients of part_rmsnorm_forward, with g = dy * (gain + gain_offset):
///
///   dx     = inverse * (g - x * inverse^2 * products / whole_width)   [rows, width], written; may be dy
///   dgain += sum over rows of dy * x * inverse                        [width]; empty: not wanted
///
///   products      [rows], as part_products, of whole rows; empty: this rank leaves the second term of dx to another
///   whole_width   width of whole rows
void part_rmsnorm_backward(Threads& threads, const PartNorm& of, std::span<const float> dy,
                           std::span<const double> products, std::int64_t whole_width, std::span<float> dx,
                           std::span<float> dgain);

}  // namespace tessera::kernels
