#include "framework/kernels/gemm_blas.h"

#include <cblas.h>

#include <algorithm>

#include "framework/kernels/activation_range.h"
#include "framework/kernels/gemm_cut.h"

namespace tessera {
namespace {

/// Blocks of at most 512 x 512: large enough that OpenBLAS reaches its peak, small enough for several threads.
Cut cut_for_blas(const Product& p) {
  constexpr std::int64_t rows = 512, cols = 512;
  Cut cut{};
  cut.rows = even_part(p.M, rows, 8);
  cut.cols = even_part(p.N, cols, 16);
  cut.row_blocks = ceil_div(p.M, cut.rows);
  cut.col_blocks = ceil_div(p.N, cut.cols);
  cut.rows_first = p.N > p.M;
  return cut;
}

/// One block of c with cblas_sgemm. The bias is copied to c first, and BLAS adds to it (beta = 1).
void block(const Product& p, std::int64_t row, std::int64_t rows, std::int64_t col, std::int64_t cols) {
  float* c = p.c + row * p.N + col;
  if (p.bias != nullptr)
    for (std::int64_t r = 0; r < rows; ++r) std::copy_n(p.bias + col, cols, c + r * p.N);
  // An operand with only one row or column has an arbitrary stride, but BLAS requires a leading dimension that is at
  // least the extent.
  const bool a_flipped = p.a.along != 1, b_flipped = p.b.along == 1;
  const std::int64_t a_leading = a_flipped ? std::max(p.a.along, rows) : std::max({p.a.across, p.K, std::int64_t{1}});
  const std::int64_t b_leading = b_flipped ? std::max({p.b.across, p.K, std::int64_t{1}}) : std::max(p.b.along, cols);
  cblas_sgemm(CblasRowMajor, a_flipped ? CblasTrans : CblasNoTrans, b_flipped ? CblasTrans : CblasNoTrans,
              static_cast<int>(rows), static_cast<int>(cols), static_cast<int>(p.K), 1, p.a.at + row * p.a.across,
              static_cast<int>(a_leading), p.b.at + col * p.b.across, static_cast<int>(b_leading),
              p.add || p.bias != nullptr ? 1 : 0, c, static_cast<int>(p.N));
  if (p.act == Activation::none) return;
  for (std::int64_t r = 0; r < rows; ++r)
    activation_range(p.act, c + r * p.N, p.y + row * p.N + col + r * p.N, static_cast<std::size_t>(cols));
}

/// Once per process: OpenBLAS must not start threads of its own inside our tiles.
void one_thread_each() {
  static const bool told = (openblas_set_num_threads(1), true);
  static_cast<void>(told);
}

}  // namespace

void multiply_blas(Threads& threads, const Product& p) {
  one_thread_each();
  const Cut cut = cut_for_blas(p);
  threads.parallel_for(static_cast<std::size_t>(cut.tasks()), 1, [&](std::size_t task, std::size_t) {
    const auto at = static_cast<std::int64_t>(task);
    const std::int64_t row = cut.row_of(at), col = cut.col_of(at);
    block(p, row, std::min(cut.rows, p.M - row), col, std::min(cut.cols, p.N - col));
  });
}

}  // namespace tessera
