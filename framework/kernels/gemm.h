#pragma once

#include <cstdint>
#include <span>

#include "framework/kernels/elements.h"
#include "framework/kernels/linear.h"
#include "framework/kernels/threads.h"
#include "framework/kernels/weight.h"

namespace tessera::kernels {

/// One operand of a matrix product. Element (i, k), where k is the index that is summed over, is element
/// i * across + k * along of `elements`. One of the two strides is 1: along == 1 means that k is the inner (contiguous)
/// index. Does not own the memory.
///
/// `stored`: the elements are those of this matrix, and `elements` has only their number and type. Only the factor `b`
/// of products of linear layers can be stored.
struct Factor {
  Elements elements;
  std::int64_t across = 0, along = 0;
  const StoredMatrix* stored = nullptr;

  Factor() = default;
  Factor(const Weight& weight, std::int64_t i_stride, std::int64_t k_stride)
      : elements(weight.elements), across(i_stride), along(k_stride), stored(weight.stored) {}

  DType type() const { return elements.type; }
  const std::byte* element(std::int64_t i, std::int64_t k) const {
    return elements.at + (i * across + k * along) * static_cast<std::int64_t>(size_of(elements.type));
  }
  /// The part of the operand from element (i, k) on.
  Factor from(std::int64_t i, std::int64_t k) const {
    const auto skipped = static_cast<std::size_t>(i * across + k * along);
    return {elements.part(skipped, elements.size() - skipped), across, along};
  }
};

/// c = a b^T + bias, or c += a b^T when `add`; if `act` is not none, also y = act(c).
///
///   a      [M, K], b [N, K] in the sense of Factor; float32, bfloat16 or float16
///   c, y   [M, N], dense; the same types. The sum is fp32; c is rounded once, and so is y
///
/// If k is the outer index of `a` (a weight gradient), c is float32 and there is no activation. Internal to this
/// component: linear.h checks the extents and is what other components call.
struct MatrixProduct {
  std::int64_t M, N, K;
  Factor a, b;
  MutableElements c;
  bool add = false;
  const float* bias = nullptr;  // [N], or null. `bias` excludes `add`
  Activation act = Activation::none;
  MutableElements y{};
};

/// Compute `product` with the kernels of chosen_isa(): our own register tiles for avx2 and above, OpenBLAS for
/// portable. Two bfloat16 factors are multiplied as such by pair_tiles() (pairs of products, summed in fp32); in all
/// other cases 16-bit factors are widened to fp32 where they are packed. The blocking and the order of every sum depend
/// on M, N, K, the types and the instruction set only, never on the number of threads.
void multiply(Threads& threads, const MatrixProduct& product);

/// Computes products that do not depend on one another and write different memory, such as those of the experts of a
/// layer. The threads share the tasks of all of them, so that neither a small product nor a large one leaves a thread
/// idle. The order of every sum depends on the same as that of multiply().
void multiply_group(Threads& threads, std::span<const MatrixProduct> products);

struct TileKernels;
/// The register tiles that multiply() computes `product` with; null: OpenBLAS.
const TileKernels* tiles_of(const MatrixProduct& product);
/// The register tiles of chosen_isa() that multiply pairs of bfloat16; null if it has none.
const TileKernels* pair_tiles();

}  // namespace tessera::kernels
