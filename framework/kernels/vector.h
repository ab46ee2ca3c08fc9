#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "framework/kernels/threads.h"

namespace tessera::kernels {

// Elementwise passes and reductions over flat fp32 memory. Functions with two spans throw ShapeError if the sizes
// differ.
void fill(Threads& threads, float value, std::span<float> y);                             ///< y = value
void copy(Threads& threads, std::span<const float> x, std::span<float> y);                ///< y = x
void copy_bytes(Threads& threads, std::span<const std::byte> x, std::span<std::byte> y);  ///< the same for any elements
void add(Threads& threads, std::span<const float> x, std::span<float> y);                 ///< y += x
void scale(Threads& threads, float factor, std::span<float> y);                           ///< y *= factor
/// Sum of squares, accumulated in double, in an order that depends on the size only. NaN and infinity propagate.
double sum_of_squares(Threads& threads, std::span<const float> x);
/// Number of elements that are exactly zero.
std::int64_t count_zeros(Threads& threads, std::span<const float> x);
/// Checksum: the sum of the bytes of `x` as 64-bit words, modulo 2^64, in the calling thread. Every single bit that
/// changes changes it, and it is fast enough for every step. A last word that is incomplete is filled with zeros.
std::uint64_t sum_of_words(std::span<const float> x);
/// Index of the first element that is NaN or infinite; -1 if all are finite.
std::int64_t first_not_finite(Threads& threads, std::span<const float> x);

/// Factors of one AdamW update; all are the same for every element of a step.
struct AdamWFactors {
  double lr, beta1, beta2, eps, decay, clip, fix1, fix2;
};
/// One AdamW update of a range, in the calling thread; the caller divides the parameters into ranges. Elementwise:
///
///   g  = clip * grad
///   m  = beta1 m + (1 - beta1) g
///   v  = beta2 v + (1 - beta2) g^2
///   p -= lr * ((m / fix1) / (sqrt(v / fix2) + eps) + decay * p)
///
///   p, grad, m, v   [n]   fp32 master parameters, main gradients, first and second moment; p, m and v are updated
///
/// clip multiplies the gradient (clipping and loss scale together); fix1 = 1 - beta1^t and fix2 = 1 - beta2^t are the
/// bias corrections. Factors are computed once in double (1 - beta2 in float would be wrong by 5e-5), elements in
/// float. The result is the same for any division into ranges of whole 64-element blocks, so a shard of a distributed
/// optimizer updates to the same bits as the whole. Throws ShapeError if the sizes differ. Source: Loshchilov & Hutter,
/// arXiv:1711.05101.
void adamw_update(const AdamWFactors& f, std::span<float> p, std::span<const float> grad, std::span<float> m,
                  std::span<float> v);

/// Checksums (sum_of_words) of what an update found and of what it left: of the weights, and of all its other arrays
/// together.
struct UpdateSums {
  std::uint64_t weights_before = 0, state_before = 0, weights_after = 0, state_after = 0;
};

/// Copies of blocks of 64 elements, each made before its block changes, so that another process can complete an update
/// that is killed at any instruction: the block whose number is in `copied` is undone first, unless the number in
/// `done` is larger. `values` has 64 elements for each array that changes, in the order of the update's arguments.
struct BlockUndo {
  std::atomic<std::uint64_t>& copied;
  std::atomic<std::uint64_t>& done;
  float* values;
  std::uint64_t first;         ///< number of the first block; they count up
  UpdateSums* sums = nullptr;  ///< the update adds to them, if there are any
};
/// The same with such copies; sizes are multiples of 64. The same bits.
void adamw_update(const AdamWFactors& f, std::span<float> p, std::span<const float> grad, std::span<float> m,
                  std::span<float> v, const BlockUndo& undo);

/// Factors of one SGD update, as in AdamWFactors; `decay` is L2 regularization, added to the gradient.
struct SgdFactors {
  double lr, momentum, decay, clip;
  bool nesterov = false;
};
/// One SGD update of a range, in the calling thread, as torch.optim.SGD without dampening. Elementwise:
///
///   g  = clip * grad + decay * p
///   u  = momentum u + g
///   p -= lr * u                      (nesterov: lr * (g + momentum u))
///
///   p, grad, u   [n]   u is the momentum buffer; p and u are updated
///
/// The result is the same for any division into ranges of whole 64-element blocks. Throws ShapeError if the sizes
/// differ.
void sgd_update(const SgdFactors& f, std::span<float> p, std::span<const float> grad, std::span<float> u);

/// Sets flush-to-zero and denormals-are-zero in the calling thread (x86-64; elsewhere no effect). Threads does it for
/// its own threads. Denormals would make single operations tens of times slower.
void flush_denormals();

}  // namespace tessera::kernels
