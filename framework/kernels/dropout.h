#pragma once

#include <cstdint>
#include <span>

#include "framework/base/random.h"
#include "framework/kernels/elements.h"
#include "framework/kernels/threads.h"

namespace tessera::kernels {

/// Selects the elements that dropout sets to 0. The decision is a pure function of (key, sample id, element index in
/// that sample), so it is the same on every parallel layout, and the backward pass recomputes it instead of storing a
/// mask.
///
/// Element e of sample s is dropped if the 32-bit word e of Philox stream s of `key` (base/random.h) is below
/// rate * 2^32.
struct DropoutMask {
  RandomKey key;                             ///< derived from the seed, the purpose and the dropout site in the model
  std::span<const std::int64_t> sample_ids;  ///< one per sample of the batch; owned by the caller
  double rate = 0;                           ///< probability that an element is dropped, in [0, 1)
  std::int64_t first_element = 0;            ///< index in the unsharded sample of this rank's first element
  /// A rank may have two chunks of each sample (context parallelism): its elements from index `gap_at` on, counted from
  /// its first element, have an index in the unsharded sample that is larger by another `gap`. 0: a single chunk. Not
  /// used by attention.
  std::int64_t gap_at = 0, gap = 0;
  /// A rank may have the same `row` columns of each token (tensor parallelism); a token has `row_stride` columns in the
  /// unsharded sample. 0: whole tokens. Not used by attention.
  std::int64_t row = 0, row_stride = 0;
  /// The elements are rows of single tokens in any order, `row` elements each: for each of `sample_ids`, which may
  /// repeat, the index of the token in the unsharded sample. Empty: whole samples. Not used by attention.
  std::span<const std::int64_t> tokens = {};
};

/// y = residual + x * keep / (1 - rate), where keep is 0 for dropped elements and 1 for the others.
///
///   x, y, residual   [samples, elements per sample]   `residual` may be empty (no addition); y may be x or residual
///
/// x, y and residual may have different types; sums are fp32, rounded once. With rate 0 only the addition is done, and
/// `mask.sample_ids` is not used. Throws ShapeError if sizes differ or the number of elements is no multiple of the
/// number of samples in `mask`, BugError for a rate outside [0, 1).
void dropout_add_forward(Threads& threads, const DropoutMask& mask, const Elements& x, const Elements& residual,
                         const MutableElements& y);

/// Gradient of dropout_add_forward with respect to x: dx = dy * keep / (1 - rate), with the mask of the forward pass
/// drawn again. The gradient with respect to `residual` is dy itself. dx may be dy. Throws as dropout_add_forward.
void dropout_backward(Threads& threads, const DropoutMask& mask, const Elements& dy, const MutableElements& dx);

}  // namespace tessera::kernels
