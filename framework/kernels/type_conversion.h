#pragma once

#include <span>

#include "framework/kernels/elements.h"
#include "framework/kernels/threads.h"

namespace tessera::kernels {

/// y = x converted to float, exactly.
///
///   x   any shape; float32, bfloat16 or float16
///   y   as many floats as x has elements
///
/// Throws ShapeError for another type or another count.
void widen(Threads& threads, const Elements& x, std::span<float> y);

/// y = x rounded to the type of y (float32, bfloat16 or float16): to nearest, ties to even. NaN stays NaN; a value that
/// is too large becomes infinity. Subnormal results are kept even when flush_denormals is set. Throws ShapeError as
/// widen.
void narrow(Threads& threads, std::span<const float> x, const MutableElements& y);

/// As widen and narrow, for one range in the calling thread: for use inside a tile of another loop. Throw as widen.
void widen_range(const Elements& x, std::span<float> y);
void narrow_range(std::span<const float> x, const MutableElements& y);

/// Rounds x to `type` (bfloat16 or float16) and converts it back to float, in place; does nothing for float32. Gives
/// the values that remain after storing x in 16 bits.
void round_to(Threads& threads, DType type, std::span<float> x);

/// Index of the first element that is NaN or infinite; -1 if all are finite. x is float32, bfloat16 or float16.
std::int64_t first_not_finite(Threads& threads, const Tensor& x);

}  // namespace tessera::kernels
