#pragma once

#include <span>

#include "framework/kernels/threads.h"
#include "framework/tensor/tensor.h"

namespace tessera {

/// y = x as float, exactly; x is float32, bfloat16 or float16. ShapeError for another type or another count.
void widen(Threads& threads, const Tensor& x, std::span<float> y);

/// y = x rounded to the type of y (float32, bfloat16 or float16): to nearest, ties to even; NaN stays NaN, what is too
/// large becomes infinite. Subnormal results are kept, whatever flush_denormals says. ShapeError as above.
void narrow(Threads& threads, std::span<const float> x, const Tensor& y);

/// The same of one range, in the calling thread: for tiles of somebody else's loop.
void widen_range(const Tensor& x, std::span<float> y);
void narrow_range(std::span<const float> x, const Tensor& y);

/// x = what is left of it in `type`; nothing for float32.
void round_to(Threads& threads, DType type, std::span<float> x);

/// Index of the first element that is NaN or infinite; -1 when all are finite. For the floating types above.
std::int64_t first_not_finite(Threads& threads, const Tensor& x);

}  // namespace tessera
