#include "framework/kernels/gemm_packed.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "framework/base/error.h"
#include "framework/kernels/activation_range.h"
#include "framework/kernels/gemm_stored.h"
#include "framework/kernels/panels_ahead.h"
#include "framework/kernels/scratch.h"
#include "framework/kernels/task_grid.h"

namespace tessera::kernels {
namespace {

std::int64_t round_up(std::int64_t x, std::int64_t unit) { return ceil_div(x, unit) * unit; }

/// The division of c into tasks: at least `enough_tasks` if the extents allow it, so that a few threads finish at about
/// the same time. A task with few rows is expensive because b is packed again for each block of rows; a task with
/// few columns reads strips of a more often, which costs less, and least if the strips are packed. So columns are
/// divided first. If that gives few tasks of unequal width (128 columns: 96 and 32), rows are divided instead: packing
/// b for 32 rows takes a fifth of the time of multiplying it with them, so less than one thread would wait (64 x 128 x
/// 512 on two threads of a Zen 4: 137 to 188 GFLOP/s).
TaskGrid grid_of_tiles(const TileKernels& t, const MatrixProduct& p, std::int64_t enough_tasks) {
  constexpr std::int64_t few_rows = 384, many_rows = 1024;
  TaskGrid grid{};
  const auto set_rows = [&](std::int64_t most) {
    grid.rows = even_part(p.M, most, t.rows);
    grid.row_blocks = ceil_div(p.M, grid.rows);
  };
  const auto set_panels = [&](std::int64_t most) {
    grid.cols = even_part(p.N, t.cols * most, t.cols);
    grid.col_blocks = ceil_div(p.N, grid.cols);
  };
  set_rows(many_rows);
  set_panels(t.panels);
  const std::int64_t fewest = ceil_div(p.a.along == 1 ? 96 : 48, t.cols);
  for (std::int64_t panels = t.panels / 2; grid.tasks() < enough_tasks && panels >= fewest; panels /= 2)
    set_panels(panels);
  if (grid.tasks() < enough_tasks) {
    const std::int64_t fewest_rows = 4 * t.rows;
    const bool unequal = p.N % grid.cols != 0;
    if (p.a.along == 1 && unequal && p.M > fewest_rows) {
      set_panels(t.panels);
      set_rows(std::max(fewest_rows, ceil_div(p.M, 4)));
    } else {
      set_rows(std::max(few_rows, ceil_div(p.M, ceil_div(enough_tasks, grid.col_blocks))));
    }
  }
  grid.rows_first = p.N > p.M;
  return grid;
}

/// Whether words of a factor lie in memory as the tile reads them. Else a factor whose inner index is k is widened.
bool in_words(const TileKernels& t, DType type) { return type == (t.elements == 2 ? DType::bfloat16 : DType::float32); }

/// Where a task finds its strips of a: in the rows of a itself, or packed, either by all tasks together or by the task.
/// Extents and strides along k are in words.
struct Strips {
  const float* at;
  std::int64_t across;           ///< from a row of a to the next; packed: from a strip to the next
  std::int64_t packed_rows = 0;  ///< in a strip; 0: not packed
  std::int64_t block = 1;        ///< words of k that lie together; packed strips hold whole blocks of them
  std::int64_t row = 0, k = 0;   ///< of the first word that is packed

  struct Strip {
    const float* at;
    std::int64_t row, step;  ///< a_row and a_step of TileCall
  };
  Strip strip(std::int64_t first, std::int64_t step) const {
    if (packed_rows == 0) return {at + first * across + step, across, 1};
    return {at + (first - row) / packed_rows * across + (step - k) * packed_rows, block, packed_rows};
  }
};

/// Packs `steps` words, from word k on, of rows [first, last) of a; k is its outer index.
void pack_strips(const TileKernels& t, const MatrixProduct& p, std::int64_t first, std::int64_t last, std::int64_t k,
                 std::int64_t steps, std::int64_t apart, float* to) {
  packing_of(t, p.a.type())
      .strips(p.a.element(first, k * t.elements), p.a.along, elements_in(t, p, k, steps), last - first, apart, to);
}

/// Packs `steps` words, from word k on, of columns [first, last) of b.
void pack_panels(const TileKernels& t, const MatrixProduct& p, std::int64_t first, std::int64_t last, std::int64_t k,
                 std::int64_t steps, std::int64_t apart, float* to) {
  if (p.b.stored != nullptr)
    return pack_stored(t, p.b, first, last, k * t.elements, elements_in(t, p, k, steps), apart, to);
  const auto& packing = packing_of(t, p.b.type());
  const std::byte* at = p.b.element(first, k * t.elements);
  if (p.b.along == 1)
    packing.along(at, p.b.across, steps, last - first, apart, to);
  else
    packing.across(at, p.b.along, elements_in(t, p, k, steps), last - first, apart, to);
}

/// Operands that the tasks of one product share. What is null, each task packs for itself, one block of k at a time.
struct Shared {
  const Strips* strips = nullptr;
  const float* panels = nullptr;  ///< of all columns; the block that begins at k lies at k * width
  std::int64_t width = 0;         ///< N rounded up to whole panels
};

/// Rows of c as floats, before they are rounded to the type of c. A view of c itself if that is float.
struct Sums {
  float* at;
  std::int64_t row;  ///< floats from a row to the next
};

/// Finishes `count` rows of c from row `row`, columns [col, col + cols): the rounding to 16 bits, and the activation of
/// what was rounded.
void finish(const TileKernels& t, const MatrixProduct& p, std::int64_t row, std::int64_t count, std::int64_t col,
            std::int64_t cols, const Sums& sums) {
  const auto size = static_cast<std::size_t>(cols);
  for (std::int64_t r = 0; r < count; ++r) {
    const auto first = static_cast<std::size_t>((row + r) * p.N + col);
    float* from = sums.at + r * sums.row;
    const auto c = p.c.part(first, size);
    if (c.type != DType::float32) packing_of(t, c.type).narrow(from, cols, c.at);
    if (p.act == Activation::none) continue;
    if (c.type != DType::float32) packing_of(t, c.type).widen(c.at, cols, from);
    const auto y = p.y.part(first, size);
    if (y.type == DType::float32) {
      activation_range(p.act, from, reinterpret_cast<float*>(y.at), size);
    } else {
      must(c.type != DType::float32, "a product with a float result has no 16-bit activation");
      activation_range(p.act, from, from, size);
      packing_of(t, y.type).narrow(from, cols, y.at);
    }
  }
}

/// One task: rows [first, last) by columns [col, col_end) of c.
class Task {
 public:
  /// `next_col`: where the columns of the task begin that this thread will probably run next; p.N if there is none.
  Task(const TileKernels& t, const MatrixProduct& p, const Shared& shared, std::int64_t col, std::int64_t col_end,
       std::int64_t next_col)
      : t_(t),
        p_(p),
        shared_(shared),
        col_(col),
        col_end_(col_end),
        next_col_(next_col),
        words_(words_in(t, p.K)),
        depth_(even_part(words_, t.depth, t.block)) {}

  void run(std::int64_t first, std::int64_t last) {
    const std::int64_t apart = depth_ * t_.rows + 16, panel = depth_ * t_.cols;
    const bool packs_panels = shared_.panels == nullptr, packs_strips = shared_.strips == nullptr && p_.a.along != 1;
    const Scratch own_panels(packs_panels ? static_cast<std::size_t>(ceil_div(col_end_ - col_, t_.cols) * panel) : 0);
    const Scratch own_strips(packs_strips ? static_cast<std::size_t>(ceil_div(last - first, t_.rows) * apart) : 0);
    const Scratch rows(choose_row_memory(first, last));
    divide_row_memory(rows.data());
    for (std::int64_t k = 0; k < words_; k += depth_) {
      const std::int64_t steps = std::min(depth_, words_ - k);
      if (packs_panels) {
        pack_panels(t_, p_, col_, col_end_, k, steps, panel, own_panels.data());
        look_ahead(k + steps, ceil_div(last - first, t_.rows) * ceil_div(col_end_ - col_, t_.cols));
      }
      if (packs_strips) pack_strips(t_, p_, first, last, k, steps, apart, own_strips.data());
      panels_ = packs_panels ? own_panels.data() : shared_.panels + k * shared_.width + col_ * depth_;
      const Strips strips = packs_strips                ? Strips{.at = own_strips.data(),
                                                                 .across = apart,
                                                                 .packed_rows = t_.rows,
                                                                 .block = t_.block,
                                                                 .row = first,
                                                                 .k = k}
                            : shared_.strips != nullptr ? *shared_.strips
                                                        : rows_in_place();
      for (std::int64_t row = first; row < last; row += t_.rows) strip(strips, row, first, last, k, steps);
    }
  }

 private:
  Strips rows_in_place() const { return {reinterpret_cast<const float*>(p_.a.elements.at), p_.a.across / t_.elements}; }

  /// The block of b that is packed after that which ends at word k, to be fetched during `calls` tiles.
  void look_ahead(std::int64_t k, std::int64_t calls) {
    ahead_ = k < words_ ? PanelsAhead(t_, p_, col_, col_end_, k, std::min(depth_, words_ - k))
                        : PanelsAhead(t_, p_, next_col_, std::min(next_col_ + col_end_ - col_, p_.N), 0, depth_);
    lines_of_call_ = ceil_div(ahead_.lines(), calls);
  }

  bool has_sums() const { return p_.c.type != DType::float32; }
  bool widens() const { return p_.a.along == 1 && !in_words(t_, p_.a.type()); }

  /// Floats for the sums of a 16-bit c, of one strip if all of k is one block, else of all rows of the task; and for
  /// one strip of a 16-bit `a` that is widened.
  std::size_t choose_row_memory(std::int64_t first, std::int64_t last) {
    if (!has_sums() && !widens()) return 0;
    sums_row_ = ceil_div(col_end_ - col_, 16) * 16;
    widened_row_ = ceil_div(depth_, 16) * 16 + 16;
    one_strip_ = depth_ >= words_;
    sums_size_ = has_sums() ? (one_strip_ ? t_.rows : last - first) * sums_row_ : 0;
    return static_cast<std::size_t>(sums_size_ + (widens() ? t_.rows * widened_row_ : 0));
  }
  void divide_row_memory(float* memory) {
    if (has_sums()) sums_ = memory;
    if (widens()) widened_ = memory + sums_size_;
  }

  /// Rows [row, row + R) of c: the strip against every panel. The last panel prefetches the next strip. The bias is
  /// added with the first block of k, the activation is applied after the last.
  void strip(const Strips& strips, std::int64_t row, std::int64_t first, std::int64_t last, std::int64_t k,
             std::int64_t steps) {
    const std::int64_t count = std::min(t_.rows, last - row);
    Strips::Strip a{widened_, widened_row_, 1};
    const float* next = widened_;
    if (widened_ == nullptr) {
      a = strips.strip(row, k);
      next = strips.strip(row + t_.rows < last ? row + t_.rows : row, k).at;
    } else {
      const auto& packing = packing_of(t_, p_.a.type());
      for (std::int64_t r = 0; r < count; ++r)
        packing.widen(p_.a.element(row + r, k), steps, widened_ + r * widened_row_);
    }
    const Sums sums = sums_ != nullptr ? Sums{sums_ + (one_strip_ ? 0 : (row - first) * sums_row_), sums_row_}
                                       : Sums{reinterpret_cast<float*>(p_.c.at) + row * p_.N + col_, p_.N};
    if (sums_ != nullptr && p_.add && k == 0) widen_rows_of_c(row, count, sums);
    const bool onto = p_.add || k > 0;
    for (std::int64_t col = col_; col < col_end_; col += t_.cols) {
      float* c = sums.at + (col - col_);
      const float* start = onto ? c : p_.bias != nullptr ? p_.bias + col : nullptr;
      ahead_.fetch(lines_of_call_);
      t_.tile({a.at, a.row, a.step, col + t_.cols < col_end_ ? a.at : next, panels_ + (col - col_) * depth_, steps,
               start, onto ? sums.row : 0, c, sums.row, count, std::min(t_.cols, col_end_ - col)});
    }
    if (k + steps < words_ || (sums_ == nullptr && p_.act == Activation::none)) return;
    finish(t_, p_, row, count, col_, col_end_ - col_, sums);
  }

  void widen_rows_of_c(std::int64_t row, std::int64_t count, const Sums& sums) const {
    const auto& packing = packing_of(t_, p_.c.type);
    for (std::int64_t r = 0; r < count; ++r)
      packing.widen(p_.c.part(static_cast<std::size_t>((row + r) * p_.N + col_), 0).at, col_end_ - col_,
                    sums.at + r * sums.row);
  }

  const TileKernels& t_;
  const MatrixProduct& p_;
  const Shared& shared_;
  const std::int64_t col_, col_end_, next_col_, words_, depth_;
  PanelsAhead ahead_;
  std::int64_t lines_of_call_ = 0;
  const float* panels_ = nullptr;
  float *sums_ = nullptr, *widened_ = nullptr;
  std::int64_t sums_row_ = 0, sums_size_ = 0, widened_row_ = 0;
  bool one_strip_ = false;
};

/// `threads`: how many run the tasks of the grid.
void run_task(const TileKernels& t, const MatrixProduct& p, const TaskGrid& grid, const Shared& shared,
              std::int64_t task, int threads) {
  const std::int64_t row = grid.row_of(task), col = grid.col_of(task), next = task + threads;
  Task(t, p, shared, col, std::min(col + grid.cols, p.N), next < grid.tasks() ? grid.col_of(next) : p.N)
      .run(row, std::min(row + grid.rows, p.M));
}

void matrix_product(Threads& threads, const TileKernels& t, const MatrixProduct& p, const TaskGrid& grid,
                    const Shared& shared) {
  threads.parallel_for(static_cast<std::size_t>(grid.tasks()), 1, [&](std::size_t task, std::size_t) {
    run_task(t, p, grid, shared, static_cast<std::int64_t>(task), threads.count());
  });
}

/// For an `a` with k outermost, and an output so narrow that one task can take all columns: each task packs its own
/// rows of a, which no other task needs. b is packed by all threads together, in pieces of k that take at most
/// `packed_floats` floats.
void multiply_narrow(Threads& threads, const TileKernels& t, const MatrixProduct& p, std::int64_t packed_floats) {
  constexpr std::int64_t enough_tasks = 16, few_rows = 48, many_rows = 256;
  TaskGrid grid{};
  grid.rows = even_part(p.M, std::clamp(ceil_div(p.M, enough_tasks), few_rows, many_rows), t.rows);
  grid.cols = round_up(p.N, t.cols);
  grid.row_blocks = ceil_div(p.M, grid.rows);
  grid.col_blocks = 1;
  const std::int64_t words = words_in(t, p.K);
  const std::int64_t most = std::max(t.depth, packed_floats / grid.cols / t.depth * t.depth);
  // The last block of k lies as far apart as the others, though it may be shorter.
  const std::int64_t longest = std::min(words, most);
  const Scratch memory(static_cast<std::size_t>(round_up(longest, even_part(longest, t.depth, t.block)) * grid.cols));
  float* panels = memory.data();
  for (std::int64_t first = 0; first < words; first += most) {
    const std::int64_t some = std::min(most, words - first), depth = even_part(some, t.depth, t.block);
    MatrixProduct part = p;
    part.K = elements_in(t, p, first, some);
    part.a = p.a.from(0, first * t.elements);
    part.b = p.b.from(0, first * t.elements);
    part.add = p.add || first > 0;
    threads.parallel_for(static_cast<std::size_t>(some), static_cast<std::size_t>(depth),
                         [&](std::size_t k, std::size_t end) {
                           const auto at = static_cast<std::int64_t>(k), steps = static_cast<std::int64_t>(end) - at;
                           pack_panels(t, part, 0, p.N, at, steps, depth * t.cols, panels + at * grid.cols);
                         });
    matrix_product(threads, t, part, grid, {nullptr, panels, grid.cols});
  }
}

/// For any other `a` with k outermost: it is packed into strips by all threads together, as many rows at a time as take
/// `packed_floats` floats.
void multiply_flipped(Threads& threads, const TileKernels& t, const MatrixProduct& p, std::int64_t packed_floats) {
  constexpr std::int64_t together = 512, steps = 128;
  const std::int64_t words = words_in(t, p.K);
  const std::int64_t apart =
      round_up(words, t.block) * t.rows + 16;  // + 16: not a multiple of 4 KiB, so that strips do not share cache sets
  const std::int64_t group = together / t.rows * t.rows;
  const std::int64_t rows = even_part(p.M, std::max(group, packed_floats / apart * t.rows), t.rows);
  const Scratch memory(static_cast<std::size_t>(ceil_div(rows, t.rows) * apart));
  float* packed = memory.data();
  for (std::int64_t first = 0; first < p.M; first += rows) {
    MatrixProduct part = p;
    part.M = std::min(rows, p.M - first);
    part.a = p.a.from(first, 0);
    part.c = p.c.part(static_cast<std::size_t>(first * p.N), static_cast<std::size_t>(part.M * p.N));
    const std::int64_t groups = ceil_div(part.M, group), blocks = ceil_div(words, steps);
    threads.parallel_for(static_cast<std::size_t>(groups * blocks), 1, [&](std::size_t task, std::size_t) {
      const std::int64_t row = static_cast<std::int64_t>(task) / blocks * group;
      const std::int64_t k = static_cast<std::int64_t>(task) % blocks * steps;
      pack_strips(t, part, row, std::min(row + group, part.M), k, std::min(steps, words - k), apart,
                  packed + row / t.rows * apart + k * t.rows);
    });
    const Strips strips{.at = packed, .across = apart, .packed_rows = t.rows, .block = t.block};
    matrix_product(threads, t, part, grid_of_tiles(t, part, t.tasks), {&strips});
  }
}

/// For a 16-bit `a` with k innermost of which several tasks read the same rows: all threads together widen it, as many
/// rows at a time as take `packed_floats` floats, and the tasks read floats. Each task would else widen its rows for
/// itself, which was 5 % of the samples of a profile (a bfloat16 step of GPT-2 124M with 1024 tokens, AVX2). If so few
/// rows fit that b would be packed often, the tasks do that.
void multiply_widened(Threads& threads, const TileKernels& t, const MatrixProduct& p, std::int64_t packed_floats) {
  constexpr std::int64_t fewest = 512, piece = 16;
  const std::int64_t stride = round_up(p.K, 16) + 16;  // as `apart` of multiply_flipped
  const std::int64_t fit = packed_floats / stride;
  const auto rows = even_part(p.M, std::max(fit, t.rows), t.rows);
  const auto grid = grid_of_tiles(t, p, t.tasks);
  if (grid.col_blocks == 1 || rows < std::min(fewest, p.M)) return matrix_product(threads, t, p, grid, {});
  const Scratch memory(static_cast<std::size_t>(std::min(rows, p.M) * stride));
  const auto widen = packing_of(t, p.a.type()).widen;
  for (std::int64_t first = 0; first < p.M; first += rows) {
    MatrixProduct part = p;
    part.M = std::min(rows, p.M - first);
    threads.parallel_for(static_cast<std::size_t>(part.M), piece, [&](std::size_t row, std::size_t end) {
      for (; row < end; ++row)
        widen(p.a.element(first + static_cast<std::int64_t>(row), 0), p.K,
              memory.data() + static_cast<std::int64_t>(row) * stride);
    });
    part.a = Factor(memory.floats(), stride, 1);
    const auto skipped = static_cast<std::size_t>(first * p.N), size = static_cast<std::size_t>(part.M * p.N);
    part.c = p.c.part(skipped, size);
    if (p.act != Activation::none) part.y = p.y.part(skipped, size);
    matrix_product(threads, t, part, grid_of_tiles(t, part, t.tasks), {});
  }
}

constexpr std::int64_t few_cols = 64;  // of a task of a product of few rows

/// Few rows, as in decoding: the time is that of reading b once, so packing it would only add to it. b is read in its
/// own type; `a` is widened, again for each task. Columns [col, col + count), which are those of `b`; at most few_cols.
void run_few(const TileKernels& t, const MatrixProduct& p, const PlainRows& b, std::int64_t col, std::int64_t count) {
  constexpr std::int64_t at_once = 4;
  const bool widens = p.a.type() != DType::float32, rounds = p.c.type != DType::float32;
  const Scratch widened(widens ? static_cast<std::size_t>(std::min(at_once, p.M) * p.K) : 0);
  std::array<float, at_once * few_cols> block;
  for (std::int64_t row = 0; row < p.M; row += at_once) {
    const std::int64_t rows = std::min(at_once, p.M - row);
    for (std::int64_t r = 0; widens && r < rows; ++r)
      packing_of(t, p.a.type()).widen(p.a.element(row + r, 0), p.K, widened.data() + r * p.K);
    const float* a = widens ? widened.data() : reinterpret_cast<const float*>(p.a.element(row, 0));
    const Sums sums =
        rounds ? Sums{block.data(), few_cols} : Sums{reinterpret_cast<float*>(p.c.at) + row * p.N + col, p.N};
    for (std::int64_t r = 0; rounds && p.add && r < rows; ++r)
      packing_of(t, p.c.type)
          .widen(p.c.part(static_cast<std::size_t>((row + r) * p.N + col), 0).at, count, sums.at + r * sums.row);
    const float* start = p.add ? sums.at : p.bias != nullptr ? p.bias + col : nullptr;
    packing_of(t, b.type).dots({a, widens ? p.K : p.a.across, b.at, b.stride, p.K, start, p.add ? sums.row : 0, sums.at,
                                sums.row, rows, count});
    if (rounds || p.act != Activation::none) finish(t, p, row, rows, col, count, sums);
  }
}

/// The same for a stored b: some of its rows at a time are copied to scratch memory, unless they can be read in place.
void run_few_stored(const TileKernels& t, const MatrixProduct& p, std::int64_t col, std::int64_t count) {
  constexpr std::int64_t most_floats = 64 << 10;
  const auto at_once = std::clamp(most_floats / std::max(p.K, std::int64_t{1}), std::int64_t{1}, few_cols);
  for (const auto end = col + count; col < end; col += at_once) {
    const auto some = std::min(at_once, end - col);
    auto b = plain_rows(*p.b.stored, col, some, 0);
    const bool readable = b.at != nullptr && (b.type == p.b.type() || p.b.type() == DType::float32);
    const Scratch copy(readable ? 0 : static_cast<std::size_t>(some * p.K));
    if (!readable) {
      read_box(*p.b.stored, {col, some, 0, p.K}, p.b.type(), copy.floats());
      b = {reinterpret_cast<const std::byte*>(copy.data()), p.K, DType::float32};
    }
    run_few(t, p, b, col, some);
  }
}

void run_few(const TileKernels& t, const MatrixProduct& p, std::int64_t col, std::int64_t count) {
  if (p.b.stored != nullptr) return run_few_stored(t, p, col, count);
  run_few(t, p, {p.b.element(col, 0), p.b.across, p.b.type()}, col, count);
}

bool takes_few_rows(const TileKernels& t, const MatrixProduct& p) { return has_few_rows(p) && t.elements == 1; }

/// Of a product in a group that has `share` of the group's work.
TaskGrid grid_in_group(const TileKernels& t, const MatrixProduct& p, double share) {
  if (takes_few_rows(t, p)) return {p.M, few_cols, 1, ceil_div(p.N, few_cols), false};
  const auto tasks = static_cast<std::int64_t>(std::ceil(share * static_cast<double>(t.tasks)));
  return grid_of_tiles(t, p, std::max(std::int64_t{1}, tasks));
}

double work_of(const MatrixProduct& p) {
  return static_cast<double>(p.M) * static_cast<double>(p.N) * static_cast<double>(p.K);
}

}  // namespace

const Packing& packing_of(const TileKernels& t, DType type) {
  switch (type) {
    case DType::float32:
      return t.float32;
    case DType::bfloat16:
      return t.bfloat16;
    case DType::float16:
      return t.float16;
    default:
      throw BugError(text("gemm: a factor of ", name_of(type)));
  }
}

bool has_few_rows(const MatrixProduct& p) {
  constexpr std::int64_t few = 32;
  return p.M <= few && p.a.along == 1 && p.b.along == 1;
}

bool multiplies_pairs(const MatrixProduct& p) {
  // Where k is the inner index, pairs must be words in memory, and whole: rows of an even number of elements, and no
  // last one alone. Where it is the outer one, packing makes the pairs.
  const auto in_pairs = [&](const Factor& factor) {
    return factor.type() == DType::bfloat16 && (factor.along != 1 || (factor.across % 2 == 0 && p.K % 2 == 0));
  };
  return in_pairs(p.a) && in_pairs(p.b) && !has_few_rows(p);
}

void multiply_packed(Threads& threads, const TileKernels& t, const MatrixProduct& p, std::int64_t packed_floats) {
  if (takes_few_rows(t, p))
    return threads.parallel_for(static_cast<std::size_t>(p.N), few_cols, [&](std::size_t first, std::size_t last) {
      run_few(t, p, static_cast<std::int64_t>(first), static_cast<std::int64_t>(last - first));
    });
  must(p.K % t.elements == 0 || (p.a.along != 1 && p.b.along != 1), "words that are read in place are whole");
  if (p.a.along == 1 && !in_words(t, p.a.type())) return multiply_widened(threads, t, p, packed_floats);
  if (p.a.along == 1) return matrix_product(threads, t, p, grid_of_tiles(t, p, t.tasks), {});
  must(p.c.type == DType::float32 && p.act == Activation::none,
       "a product whose left factor has k as its outer index is a float");
  p.N <= t.cols* t.panels ? multiply_narrow(threads, t, p, packed_floats)
                          : multiply_flipped(threads, t, p, packed_floats);
}

void multiply_packed_group(Threads& threads, std::span<const ProductOfGroup> group) {
  constexpr std::size_t most = 64;
  must(group.size() <= most, "a group of products is divided before");
  double work = 0;
  for (const auto& member : group) work += work_of(*member.product);
  std::array<TaskGrid, most> grids;
  std::array<std::int64_t, most + 1> first_task = {};
  for (std::size_t i = 0; i < group.size(); ++i) {
    const auto& [product, tiles] = group[i];
    grids[i] = grid_in_group(*tiles, *product, work_of(*product) / work);
    first_task[i + 1] = first_task[i] + grids[i].tasks();
  }
  threads.parallel_for(static_cast<std::size_t>(first_task[group.size()]), 1, [&](std::size_t at, std::size_t) {
    const auto task = static_cast<std::int64_t>(at);
    const auto after = std::upper_bound(first_task.begin(), first_task.begin() + group.size() + 1, task);
    const auto i = static_cast<std::size_t>(after - first_task.begin()) - 1;
    const auto& [product, tiles] = group[i];
    const std::int64_t own = task - first_task[i];
    if (takes_few_rows(*tiles, *product))
      run_few(*tiles, *product, grids[i].col_of(own), std::min(few_cols, product->N - grids[i].col_of(own)));
    else
      run_task(*tiles, *product, grids[i], {}, own, threads.count());
  });
}

}  // namespace tessera::kernels
