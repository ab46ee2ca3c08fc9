#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "framework/kernels/threads.h"

namespace tessera::kernels {

// Elementwise passes and reductions over flat fp32 memory. Results do not depend on the number of threads. Functions
// with two spans throw ShapeError if the sizes differ.
void fill(Threads& threads, float value, std::span<float> y);                             ///< y = value
void copy(Threads& threads, std::span<const float> x, std::span<float> y);                ///< y = x
void copy_bytes(Threads& threads, std::span<const std::byte> x, std::span<std::byte> y);  ///< y = x, for any type
void add(Threads& threads, std::span<const float> x, std::span<float> y);                 ///< y += x
void scale(Threads& threads, float factor, std::span<float> y);                           ///< y *= factor
/// Sum of squares, accumulated in double, in an order that depends on the size only. NaN and infinity propagate.
double sum_of_squares(Threads& threads, std::span<const float> x);
/// Number of elements that are exactly zero.
std::int64_t count_zeros(Threads& threads, std::span<const float> x);
/// Checksum: the sum of the memory of `x` as 64-bit words, modulo 2^64, in the calling thread. Flipping any single bit
/// changes the sum, and the sum is fast enough to compute in every step. An incomplete last word is padded with zeros.
std::uint64_t sum_of_words(std::span<const float> x);
/// Index of the first element that is NaN or infinite; -1 if all are finite.
std::int64_t first_not_finite(Threads& threads, std::span<const float> x);

/// Factors of one AdamW update, the same for every element of a step; see adamw_update.
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
/// clip multiplies the gradient (gradient clipping times 1 / loss scale); fix1 = 1 - beta1^t and fix2 = 1 - beta2^t are
/// the bias corrections of step t. Factors are computed once in double (1 - beta2 in float would be wrong by 5e-5),
/// elements in float. The bits of the result are the same for any division into ranges of whole 64-element blocks, so a
/// shard of a distributed optimizer gets the same bits as the whole. Throws ShapeError if the sizes differ. Source:
/// Loshchilov & Hutter, arXiv:1711.05101.
void adamw_update(const AdamWFactors& f, std::span<float> p, std::span<const float> grad, std::span<float> m,
                  std::span<float> v);

/// Checksums (sum_of_words) before and after an update: of the weights, and of all optimizer state (the other arrays
/// that the update changes) together.
struct UpdateSums {
  std::uint64_t weights_before = 0, state_before = 0, weights_after = 0, state_after = 0;
};

/// Undo log of an update. In shared memory it lets another process complete an update that is killed at any
/// instruction. The update works on one block of 64 elements after the other: it copies the old values of block n to
/// `values`, stores n in `copied`, changes the block, and stores n + 1 in `done`. To complete a killed update: if
/// `done` is at most `copied`, restore block `copied` from `values` and continue with this block; else continue with
/// block `done`. Owns nothing.
struct BlockUndo {
  std::atomic<std::uint64_t>& copied;
  std::atomic<std::uint64_t>& done;
  float* values;               ///< 64 elements for each array that changes, in the order of the update's arguments
  std::uint64_t first;         ///< number of the first block; the following blocks have consecutive numbers
  UpdateSums* sums = nullptr;  ///< the update adds its checksums to these; null: none are computed
};
/// As adamw_update above, with an undo log; the result has the same bits. Throws BugError unless the sizes are
/// multiples of 64.
void adamw_update(const AdamWFactors& f, std::span<float> p, std::span<const float> grad, std::span<float> m,
                  std::span<float> v, const BlockUndo& undo);

/// Factors of one SGD update, the same for every element of a step; `decay` is L2 regularization, added to the
/// gradient.
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
/// The bits of the result are the same for any division into ranges of whole 64-element blocks. Throws ShapeError if
/// the sizes differ.
void sgd_update(const SgdFactors& f, std::span<float> p, std::span<const float> grad, std::span<float> u);

/// Sets flush-to-zero and denormals-are-zero in the calling thread (x86-64; no effect on other processors). The class
/// Threads does so in each of its threads. Denormals would make single operations tens of times slower.
void flush_denormals();

}  // namespace tessera::kernels
