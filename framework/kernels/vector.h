#pragma once

#include <cstdint>
#include <span>

#include "framework/kernels/threads.h"

namespace tessera {

void fill(Threads& threads, float value, std::span<float> y);               ///< y = value
void copy(Threads& threads, std::span<const float> x, std::span<float> y);  ///< y = x
void add(Threads& threads, std::span<const float> x, std::span<float> y);   ///< y += x
void scale(Threads& threads, float factor, std::span<float> y);             ///< y *= factor
/// Sum of squares, in double, in an order that depends on the size only. NaN and infinity pass through to the result.
double sum_of_squares(Threads& threads, std::span<const float> x);
/// How many elements are exactly zero.
std::int64_t count_zeros(Threads& threads, std::span<const float> x);
/// Index of the first element that is NaN or infinite; -1 when all are finite.
std::int64_t first_not_finite(Threads& threads, std::span<const float> x);

/// One AdamW update of a range, single-threaded and pure: the caller cuts the ranges. Elementwise
///   g = clip * grad;  m = b1 m + (1-b1) g;  v = b2 v + (1-b2) g^2;
///   p -= lr * ((m / fix1) / (sqrt(v / fix2) + eps) + decay * p)
/// The factors are computed in double once (1 - b2 in float would be wrong by 5e-5), the elements in float.
/// The same bits for any cut into ranges of whole 64-element blocks. Source: Loshchilov & Hutter, arXiv:1711.05101.
struct AdamWFactors {
  double lr, beta1, beta2, eps, decay, clip, fix1, fix2;
};
void adamw_update(const AdamWFactors& f, std::span<float> p, std::span<const float> grad, std::span<float> m,
                  std::span<float> v);

/// One SGD update: u = momentum u + clip * grad + decay * p;  p -= lr * u (or p -= lr * (g + momentum u) when
/// nesterov).
struct SgdFactors {
  double lr, momentum, decay, clip;
  bool nesterov = false;
};
void sgd_update(const SgdFactors& f, std::span<float> p, std::span<const float> grad, std::span<float> u);

/// Set flush-to-zero and denormals-are-zero in the calling thread. The pool does it for its own.
void flush_denormals();

}  // namespace tessera
