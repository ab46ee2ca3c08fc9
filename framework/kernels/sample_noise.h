#pragma once

#include <cstdint>
#include <span>

#include "framework/base/random.h"
#include "framework/kernels/elements.h"
#include "framework/kernels/threads.h"

namespace tessera::kernels {

/// Random numbers for the elements of the samples of a batch. The number of element e of sample s is a pure function of
/// `key`, s and e: it comes from word e of Philox stream s (base/random.h), so it is the same on every parallel layout,
/// and the backward pass draws it again instead of storing it. The members are those of DropoutMask (dropout.h).
struct SampleNoise {
  RandomKey key;                             ///< derived from the seed, the purpose and the site in the model
  std::span<const std::int64_t> sample_ids;  ///< one per sample of the batch; owned by the caller
  std::int64_t first_element = 0;            ///< index in the unsharded sample of this rank's first element
  std::int64_t gap_at = 0, gap = 0;          ///< second chunk of each sample, as in DropoutMask
};

/// y = x * u, or y += x * u if `add`, with u uniform in [1 - eps, 1 + eps], drawn for each element.
///
///   x, y   [samples, elements per sample]   float32, bfloat16 or float16; the types may differ
///
/// Computed in fp32 and rounded once. Results do not depend on the number of threads. Throws ShapeError if the sizes
/// differ or the number of elements is no multiple of the number of samples in `noise`.
void jitter(Threads& threads, const SampleNoise& noise, double eps, const Elements& x, const MutableElements& y,
            bool add);

/// Fills y with standard normal numbers: element e of sample s is noise.key.normal(s, e).
///
///   y   [samples, elements per sample]
///
/// Results do not depend on the number of threads. Throws as jitter.
void draw_normal(Threads& threads, const SampleNoise& noise, std::span<float> y);

}  // namespace tessera::kernels
