#pragma once

#include <span>

#include "framework/kernels/gemm.h"
#include "framework/kernels/gemm_tiles.h"
#include "framework/tensor/arena.h"

namespace tessera::kernels {

/// multiply() with our own register tiles. c is divided into tasks by its extents (task_grid.h). A task packs its
/// columns of b into panels, one block of k at a time, and multiplies strips of rows of a with them. a is read in place
/// if k is its inner index, else it is packed too. 16-bit elements are widened while they are packed; an `a` that would
/// be read in place is widened strip by strip.
///
/// Order of the sums: blocks of k in ascending order; each block is summed from zero in registers, then added to c.
///
/// A factor that all tasks share is packed in pieces of at most `packed_floats` floats; a longer product is computed in
/// several pieces. The default is 16 MiB. Kernels of pairs (`elements` 2) need multiplies_pairs(product).
void multiply_packed(Threads& threads, const TileKernels& kernels, const MatrixProduct& product,
                     std::int64_t packed_floats = std::int64_t{4} << 20);

/// What the kernels do with elements of `type`. Throws BugError for a type that no product has.
const Packing& packing_of(const TileKernels& kernels, DType type);

/// A product and the kernels that compute it.
struct ProductOfGroup {
  const MatrixProduct* product = nullptr;
  const TileKernels* tiles = nullptr;
};

/// multiply_group(): the tasks of all products in one parallel loop. A product is divided into as many tasks as its
/// share of the group's work asks for, and a task packs what it needs itself.
void multiply_packed_group(Threads& threads, std::span<const ProductOfGroup> group);

/// A product whose operands are packed before: multiply() computes the same bits as multiply_packed() without packing.
/// It tells what packing costs (bench_gemm --stages). `a` is packed if k is its outer index; otherwise it is read in
/// place. Refers to the operands and the result of `product`; owns what is packed.
class PackedOperands {
 public:
  /// Into `tasks` tasks, if the extents allow. The product must not have few rows.
  PackedOperands(Threads& threads, const TileKernels& kernels, const MatrixProduct& product, std::int64_t tasks);
  void multiply(Threads& threads) const;

 private:
  const TileKernels& t_;
  MatrixProduct p_;
  std::int64_t tasks_;
  Storage panels_, strips_;
  std::int64_t apart_;  ///< words from a strip to the next
};

/// Whether the product has few rows, as in decoding: then reading b bounds it, and b is not packed.
bool has_few_rows(const MatrixProduct& product);

/// Whether both factors are bfloat16, laid out so that tiles of pairs can read them, and the product has not few rows.
bool multiplies_pairs(const MatrixProduct& product);

}  // namespace tessera::kernels
