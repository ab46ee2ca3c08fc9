#include "framework/kernels/gemm_task.h"

#include <algorithm>

#include "framework/base/error.h"
#include "framework/kernels/activation_range.h"
#include "framework/kernels/gemm_packed.h"
#include "framework/kernels/gemm_stored.h"
#include "framework/kernels/panels_ahead.h"
#include "framework/kernels/scratch.h"

namespace tessera::kernels {

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

void pack_strips(const TileKernels& t, const MatrixProduct& p, std::int64_t first, std::int64_t last, std::int64_t k,
                 std::int64_t steps, std::int64_t apart, float* to) {
  packing_of(t, p.a.type())
      .strips(p.a.element(first, k * t.elements), p.a.along, elements_in(t, p, k, steps), last - first, apart, to);
}

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

namespace {

/// One task: rows [first, last) by columns [col, col_end) of c.
class Task {
 public:
  /// `next_row`, `next_col`: where the task begins that this thread will probably run next; p.M, p.N if there is none.
  Task(const TileKernels& t, const MatrixProduct& p, const Shared& shared, std::int64_t col, std::int64_t col_end,
       std::int64_t next_row, std::int64_t next_col)
      : t_(t),
        p_(p),
        shared_(shared),
        col_(col),
        col_end_(col_end),
        next_row_(next_row),
        next_col_(next_col),
        words_(words_in(t, p.K)),
        depth_(even_part(words_, t.depth, t.block)) {}

  void run(std::int64_t first, std::int64_t last) {
    first_ = first;
    last_ = last;
    const std::int64_t apart = depth_ * t_.rows + 16, panel = depth_ * t_.cols;
    const bool packs_panels = shared_.panels == nullptr, packs_strips = shared_.strips == nullptr && p_.a.along != 1;
    const Scratch own_panels(packs_panels ? static_cast<std::size_t>(ceil_div(col_end_ - col_, t_.cols) * panel) : 0);
    const Scratch own_strips(packs_strips ? static_cast<std::size_t>(ceil_div(last - first, t_.rows) * apart) : 0);
    const Scratch rows(choose_row_memory());
    divide_row_memory(rows.data());
    for (std::int64_t k = 0; k < words_; k += depth_) {
      const std::int64_t steps = std::min(depth_, words_ - k);
      if (packs_panels) pack_panels(t_, p_, col_, col_end_, k, steps, panel, own_panels.data());
      if (packs_strips) pack_strips(t_, p_, first, last, k, steps, apart, own_strips.data());
      if (packs_panels) look_ahead(p_.b, col_, col_end_, next_col_, p_.N, k + steps);
      if (packs_strips && !packs_panels) look_ahead(p_.a, first, last, next_row_, p_.M, k + steps);
      panels_ = packs_panels ? own_panels.data() : shared_.panels + k * shared_.width + col_ * depth_;
      const Strips strips = packs_strips                ? Strips{.at = own_strips.data(),
                                                                 .across = apart,
                                                                 .packed_rows = t_.rows,
                                                                 .block = t_.block,
                                                                 .row = first,
                                                                 .k = k}
                            : shared_.strips != nullptr ? *shared_.strips
                                                        : rows_in_place();
      for (std::int64_t col = col_; col < col_end_; col += t_.cols * t_.panels)
        multiply(strips, col, std::min(col + t_.cols * t_.panels, col_end_), k, steps);
    }
  }

 private:
  Strips rows_in_place() const { return {reinterpret_cast<const float*>(p_.a.elements.at), p_.a.across / t_.elements}; }

  /// What is packed after the block that ends at word k, to be fetched during the tiles of this block: the same rows or
  /// columns [begin, end) of `factor`, or, if k ends there, those of the next task from `next` on, up to `extent`.
  void look_ahead(const Factor& factor, std::int64_t begin, std::int64_t end, std::int64_t next, std::int64_t extent,
                  std::int64_t k) {
    const std::int64_t calls = ceil_div(last_ - first_, t_.rows) * ceil_div(col_end_ - col_, t_.cols);
    ahead_ = k < words_ ? PanelsAhead(t_, p_, factor, begin, end, k, std::min(depth_, words_ - k))
                        : PanelsAhead(t_, p_, factor, next, std::min(next + end - begin, extent), 0, depth_);
    lines_of_call_ = ceil_div(ahead_.lines(), calls);
  }

  bool has_sums() const { return p_.c.type != DType::float32; }
  /// Whether rows of `a` are widened.
  bool widens() const { return p_.a.along == 1 && !in_words(t_, p_.a.type()); }

  /// Floats for the sums of a 16-bit c, and for the rows of `a` that are widened: of a strip. If k is divided, the sums
  /// are those of all rows of the task.
  std::size_t choose_row_memory() {
    if (!has_sums() && !widens()) return 0;
    sums_row_ = round_up(col_end_ - col_, 16);
    widened_row_ = round_up(depth_, 16) + 16;
    one_block_ = depth_ >= words_;
    sums_size_ = has_sums() ? (one_block_ ? t_.rows : last_ - first_) * sums_row_ : 0;
    return static_cast<std::size_t>(sums_size_ + (widens() ? t_.rows * widened_row_ : 0));
  }
  void divide_row_memory(float* memory) {
    if (has_sums()) sums_ = memory;
    if (widens()) widened_ = memory + sums_size_;
  }

  /// Columns [col, col_end) of c from word k on: every strip, which the L1 cache holds, against all panels of these
  /// columns, which the L2 cache holds.
  void multiply(const Strips& strips, std::int64_t col, std::int64_t col_end, std::int64_t k, std::int64_t steps) {
    for (std::int64_t row = first_; row < last_; row += t_.rows) {
      const std::int64_t count = std::min(t_.rows, last_ - row);
      Strips::Strip a{widened_, widened_row_, 1};
      const float* next = widened_;
      if (widened_ == nullptr) {
        a = strips.strip(row, k);
        next = strips.strip(row + t_.rows < last_ ? row + t_.rows : first_, k).at;
      } else {
        widen_rows(row, count, k, steps);
      }
      const Sums sums = sums_of(row, count, k);
      for (std::int64_t at = col; at < col_end; at += t_.cols)
        tile(a, at + t_.cols < col_end ? a.at : next, at, sums, count, k, steps);
      finish_rows(row, count, sums, k + steps);
    }
  }

  void tile(const Strips::Strip& a, const float* next, std::int64_t col, const Sums& sums, std::int64_t count,
            std::int64_t k, std::int64_t steps) {
    float* c = sums.at + (col - col_);
    const bool onto = p_.add || k > 0;
    const float* start = onto ? c : p_.bias != nullptr ? p_.bias + col : nullptr;
    ahead_.fetch(lines_of_call_);
    t_.tile({a.at, a.row, a.step, next, panels_ + (col - col_) * depth_, steps, start, onto ? sums.row : 0, c, sums.row,
             count, std::min(t_.cols, col_end_ - col)});
  }

  /// Where the sums of `count` rows from `row` on lie; those of a 16-bit c that is added to are widened first.
  Sums sums_of(std::int64_t row, std::int64_t count, std::int64_t k) const {
    if (sums_ == nullptr) return {reinterpret_cast<float*>(p_.c.at) + row * p_.N + col_, p_.N};
    const Sums sums{sums_ + (one_block_ ? 0 : (row - first_) * sums_row_), sums_row_};
    if (!p_.add || k > 0) return sums;
    const auto& packing = packing_of(t_, p_.c.type);
    for (std::int64_t r = 0; r < count; ++r)
      packing.widen(p_.c.part(static_cast<std::size_t>((row + r) * p_.N + col_), 0).at, col_end_ - col_,
                    sums.at + r * sums.row);
    return sums;
  }

  void widen_rows(std::int64_t row, std::int64_t count, std::int64_t k, std::int64_t steps) const {
    const auto widen = packing_of(t_, p_.a.type()).widen;
    for (std::int64_t r = 0; r < count; ++r) widen(p_.a.element(row + r, k), steps, widened_ + r * widened_row_);
  }

  /// After the last word of k.
  void finish_rows(std::int64_t row, std::int64_t count, const Sums& sums, std::int64_t k) const {
    if (k < words_ || (sums_ == nullptr && p_.act == Activation::none)) return;
    finish(t_, p_, row, count, col_, col_end_ - col_, sums);
  }

  const TileKernels& t_;
  const MatrixProduct& p_;
  const Shared& shared_;
  const std::int64_t col_, col_end_, next_row_, next_col_, words_, depth_;
  std::int64_t first_ = 0, last_ = 0;  ///< rows of the task
  PanelsAhead ahead_;
  std::int64_t lines_of_call_ = 0;
  const float* panels_ = nullptr;
  float *sums_ = nullptr, *widened_ = nullptr;
  std::int64_t sums_row_ = 0, sums_size_ = 0, widened_row_ = 0;
  bool one_block_ = false;
};

}  // namespace

void run_task(const TileKernels& t, const MatrixProduct& p, const TaskGrid& grid, const Shared& shared,
              std::int64_t task, int threads) {
  const std::int64_t row = grid.row_of(task), col = grid.col_of(task), next = task + threads;
  const bool any = next < grid.tasks();
  Task(t, p, shared, col, std::min(col + grid.cols, p.N), any ? grid.row_of(next) : p.M, any ? grid.col_of(next) : p.N)
      .run(row, std::min(row + grid.rows, p.M));
}

void matrix_product(Threads& threads, const TileKernels& t, const MatrixProduct& p, const TaskGrid& grid,
                    const Shared& shared) {
  threads.parallel_for(static_cast<std::size_t>(grid.tasks()), 1, [&](std::size_t task, std::size_t) {
    run_task(t, p, grid, shared, static_cast<std::int64_t>(task), threads.count());
  });
}

}  // namespace tessera::kernels
