#include "framework/kernels/gemm_blas.h"

#include <cblas.h>
#include <dlfcn.h>

#include <algorithm>

#include "framework/base/error.h"
#include "framework/kernels/activation_range.h"
#include "framework/kernels/float_window.h"
#include "framework/kernels/gemm_stored.h"
#include "framework/kernels/scratch.h"
#include "framework/kernels/task_grid.h"
#include "framework/kernels/type_conversion.h"

namespace tessera::kernels {
namespace {

/// The functions of OpenBLAS that are called here. The library is loaded at the first use, not by the dynamic linker:
/// it serves the portable set and products in double only, and its thread and its symbols would take a third of the
/// start of every process.
struct Blas {
  decltype(&cblas_sgemm) sgemm;
  decltype(&cblas_dgemm) dgemm;
  decltype(&openblas_get_config) config;

  Blas() {
    void* library = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) library = dlopen("libopenblas.so", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      const char* why = dlerror();
      throw Error(text("OpenBLAS cannot be loaded: ", why, "; the portable kernels and products in double (routers of ",
                       "experts) need it. Install Debian's libopenblas0, or name its folder in LD_LIBRARY_PATH"));
    }
    set(library, "cblas_sgemm", sgemm);
    set(library, "cblas_dgemm", dgemm);
    set(library, "openblas_get_config", config);
    decltype(&openblas_set_num_threads) set_threads = nullptr;
    set(library, "openblas_set_num_threads", set_threads);
    set_threads(1);  // no threads of its own inside our tiles
  }

 private:
  template <typename Function>
  static void set(void* library, const char* name, Function& function) {
    function = reinterpret_cast<Function>(dlsym(library, name));
    if (function == nullptr)
      throw Error(text("the libopenblas.so.0 that was loaded is not OpenBLAS: it has no ", name));
  }
};

const Blas& blas() {
  static const Blas loaded;
  return loaded;
}

/// Blocks of at most rows x cols.
TaskGrid grid_for_blas(const MatrixProduct& p, std::int64_t rows, std::int64_t cols) {
  TaskGrid grid{};
  grid.rows = even_part(p.M, rows, 8);
  grid.cols = even_part(p.N, cols, 16);
  grid.row_blocks = ceil_div(p.M, grid.rows);
  grid.col_blocks = ceil_div(p.N, grid.cols);
  grid.rows_first = p.N > p.M;
  return grid;
}

/// Leading dimension for BLAS, which requires at least the extent: an operand with one row or column has any stride.
int leading(std::int64_t stride, std::int64_t extent) {
  return static_cast<int>(std::max({stride, extent, std::int64_t{1}}));
}

/// c[rows, cols] = a b^T + beta c with cblas_sgemm, over `steps` indices k. a and b are float.
void block_of_floats(const Factor& a, const Factor& b, std::int64_t rows, std::int64_t cols, std::int64_t steps,
                     float beta, float* c, std::int64_t c_row) {
  const bool a_flipped = a.along != 1, b_flipped = b.along == 1;
  blas().sgemm(CblasRowMajor, a_flipped ? CblasTrans : CblasNoTrans, b_flipped ? CblasTrans : CblasNoTrans,
               static_cast<int>(rows), static_cast<int>(cols), static_cast<int>(steps), 1,
               reinterpret_cast<const float*>(a.elements.at),
               a_flipped ? leading(a.along, rows) : leading(a.across, steps),
               reinterpret_cast<const float*>(b.elements.at),
               b_flipped ? leading(b.across, steps) : leading(b.along, cols), beta, c, static_cast<int>(c_row));
}

/// Whether a factor is an array of floats that BLAS can read.
bool is_float(const Factor& factor) { return factor.stored == nullptr && factor.type() == DType::float32; }

/// A copy in `memory` of elements [count, steps] of a stored factor, with the same inner index.
Factor read_stored(const Factor& factor, std::int64_t first, std::int64_t count, std::int64_t k, std::int64_t steps,
                   float* memory) {
  const std::span<float> copy(memory, static_cast<std::size_t>(count * steps));
  read_box(*factor.stored, box_of(factor, first, count, k, steps), factor.type(), copy);
  return factor.along == 1 ? Factor{copy, steps, 1} : Factor{copy, 1, count};
}

/// Elements [count, steps] of a factor from row `first` and index k on, as floats with the same inner index. A view of
/// the factor if it is float, else a copy in `memory`.
Factor as_floats(const Factor& factor, std::int64_t first, std::int64_t count, std::int64_t k, std::int64_t steps,
                 float* memory) {
  if (factor.stored != nullptr) return read_stored(factor, first, count, k, steps, memory);
  const auto part = factor.from(first, k);
  if (factor.type() == DType::float32) return part;
  const bool inner = factor.along == 1;
  const auto lines = inner ? count : steps, width = inner ? steps : count;
  for (std::int64_t line = 0; line < lines; ++line)
    widen_range(part.elements.part(static_cast<std::size_t>(line * (inner ? factor.across : factor.along)),
                                   static_cast<std::size_t>(width)),
                {memory + line * width, static_cast<std::size_t>(width)});
  const Elements copy(reinterpret_cast<const std::byte*>(memory), static_cast<std::size_t>(lines * width),
                      DType::float32);
  return inner ? Factor{copy, width, 1} : Factor{copy, 1, width};
}

/// One block of c. The bias, or what is to be added to, is the first summand (beta = 1). 16-bit factors are widened in
/// pieces of k; a 16-bit c is summed in scratch memory and rounded at the end.
void block(const MatrixProduct& p, std::int64_t row, std::int64_t rows, std::int64_t col, std::int64_t cols) {
  constexpr std::int64_t piece = 1024;
  const bool floats = is_float(p.a) && is_float(p.b), rounds = p.c.type != DType::float32;
  const auto width = static_cast<std::size_t>(cols);
  const auto line_of = [&](const MutableElements& of, std::int64_t r) {
    return of.part(static_cast<std::size_t>((row + r) * p.N + col), width);
  };
  const std::int64_t c_row = rounds ? cols : p.N;
  const Scratch sums(rounds ? static_cast<std::size_t>(rows * cols) : 0);
  float* c = rounds ? sums.data() : reinterpret_cast<float*>(line_of(p.c, 0).at);
  const auto line = [&](std::int64_t r) { return std::span(c + r * c_row, width); };
  for (std::int64_t r = 0; r < rows; ++r) {
    if (p.bias != nullptr) std::copy_n(p.bias + col, cols, line(r).data());
    if (p.add && rounds) widen_range(line_of(p.c, r), line(r));
  }
  const std::int64_t steps = floats ? p.K : std::min(p.K, piece);
  const Scratch a_memory(!is_float(p.a) ? static_cast<std::size_t>(rows * steps) : 0),
      b_memory(!is_float(p.b) ? static_cast<std::size_t>(cols * steps) : 0);
  float *const a = a_memory.data(), *const b = b_memory.data();
  for (std::int64_t k = 0; k == 0 || k < p.K; k += piece) {
    const std::int64_t some = floats ? p.K : std::min(steps, p.K - k);
    block_of_floats(as_floats(p.a, row, rows, k, some, a), as_floats(p.b, col, cols, k, some, b), rows, cols, some,
                    p.add || p.bias != nullptr || k > 0 ? 1.0F : 0.0F, c, c_row);
    if (floats) break;
  }
  for (std::int64_t r = 0; r < rows; ++r) {
    if (rounds) narrow_range(line(r), line_of(p.c, r));
    if (p.act == Activation::none) continue;
    if (rounds) widen_range(line_of(p.c, r), line(r));  // the activation of what was rounded
    const auto y = line_of(p.y, r);
    if (y.type == DType::float32) {
      activation_range(p.act, line(r).data(), reinterpret_cast<float*>(y.at), width);
    } else {
      must(rounds, "a product with a float result has no 16-bit activation");
      activation_range(p.act, line(r).data(), line(r).data(), width);
      narrow_range(line(r), y);
    }
  }
}

/// A factor's elements [count, steps] from row `first` and index k on as doubles, with the same inner index; returns
/// the stride of the outer one.
int to_doubles(const Factor& factor, std::int64_t first, std::int64_t count, std::int64_t k, std::int64_t steps,
               std::span<double> out) {
  if (factor.stored != nullptr) {
    const Scratch copy(static_cast<std::size_t>(count * steps));
    return to_doubles(read_stored(factor, first, count, k, steps, copy.data()), 0, count, 0, steps, out);
  }
  const auto part = factor.from(first, k);
  const bool inner = factor.along == 1;
  const auto lines = inner ? count : steps, width = inner ? steps : count;
  for (std::int64_t line = 0; line < lines; ++line) {
    const auto elements = part.elements.part(static_cast<std::size_t>(line * (inner ? factor.across : factor.along)),
                                             static_cast<std::size_t>(width));
    FloatReader in(elements);
    in_windows(0, elements.size(), in.in_place(), [&](std::size_t begin, std::size_t size) {
      std::copy_n(in.at(begin, size), size, out.data() + static_cast<std::size_t>(line * width) + begin);
    });
  }
  return leading(width, 1);
}

/// One block of c, in double. The factors are widened in pieces of k.
void block_in_double(const MatrixProduct& p, std::int64_t row, std::int64_t rows, std::int64_t col, std::int64_t cols) {
  constexpr std::int64_t piece = 512;
  const auto steps = std::min(p.K, piece);
  const DoubleScratch a(static_cast<std::size_t>(rows * steps)), b(static_cast<std::size_t>(cols * steps)),
      sums(static_cast<std::size_t>(rows * cols));
  const auto c = sums.all();
  const auto width = static_cast<std::size_t>(cols);
  const auto line_of = [&](std::int64_t r) { return p.c.part(static_cast<std::size_t>((row + r) * p.N + col), width); };
  const auto each_line = [&](bool update, const auto& body) {
    for (std::int64_t r = 0; r < rows; ++r) {
      FloatWriter out(line_of(r));
      in_windows(0, width, out.in_place(), [&](std::size_t begin, std::size_t size) {
        body(out.at(begin, size, update), c.data() + static_cast<std::size_t>(r) * width + begin, size);
        if (!update) out.store();
      });
    }
  };
  std::fill(c.begin(), c.end(), 0.0);
  if (p.add) each_line(true, [](const float* y, double* sum, std::size_t size) { std::copy_n(y, size, sum); });
  for (std::int64_t k = 0; k < p.K; k += piece) {
    const auto some = std::min(steps, p.K - k);
    const auto a_row = to_doubles(p.a, row, rows, k, some, a.all()),
               b_row = to_doubles(p.b, col, cols, k, some, b.all());
    blas().dgemm(CblasRowMajor, p.a.along == 1 ? CblasNoTrans : CblasTrans, p.b.along == 1 ? CblasTrans : CblasNoTrans,
                 static_cast<int>(rows), static_cast<int>(cols), static_cast<int>(some), 1, a.all().data(), a_row,
                 b.all().data(), b_row, 1, c.data(), static_cast<int>(cols));
  }
  each_line(false, [](float* y, const double* sum, std::size_t size) {
    for (std::size_t i = 0; i < size; ++i) y[i] = static_cast<float>(sum[i]);
  });
}

/// Computes the blocks of the grid by `block_of`.
void for_blocks(Threads& threads, const MatrixProduct& p, const TaskGrid& grid,
                void (*block_of)(const MatrixProduct&, std::int64_t, std::int64_t, std::int64_t, std::int64_t)) {
  blas();  // loaded by this thread: an error is then one of the product
  threads.parallel_for(static_cast<std::size_t>(grid.tasks()), 1, [&](std::size_t task, std::size_t) {
    const auto at = static_cast<std::int64_t>(task);
    const std::int64_t row = grid.row_of(at), col = grid.col_of(at);
    block_of(p, row, std::min(grid.rows, p.M - row), col, std::min(grid.cols, p.N - col));
  });
}

}  // namespace

void multiply_blas(Threads& threads, const MatrixProduct& p) {
  // Large enough that OpenBLAS reaches its peak, small enough for several threads.
  for_blocks(threads, p, grid_for_blas(p, 512, 512), block);
}

void multiply_in_double(Threads& threads, const MatrixProduct& p) {
  if (p.M > 0 && p.N > 0) for_blocks(threads, p, grid_for_blas(p, 128, 256), block_in_double);
}

std::string describe_blas() {
  try {
    return blas().config();
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace tessera::kernels
