#include "framework/kernels/gemm_packed.h"

#include <algorithm>

#include "framework/base/error.h"
#include "framework/kernels/activation_range.h"
#include "framework/kernels/gemm_cut.h"

namespace tessera {
namespace {

std::int64_t round_up(std::int64_t x, std::int64_t unit) { return ceil_div(x, unit) * unit; }

/// The division of c into tasks: at least 16 if the extents allow it, so that a few threads finish at about the same
/// time. A task with few rows is expensive because b is packed again for each block of rows; a task with few columns
/// reads strips of a more often, which costs less, and least if the strips are packed. So columns are divided first.
Cut cut_for_tiles(const TileKernels& t, const Product& p) {
  constexpr std::int64_t enough_tasks = 16, few_rows = 384, many_rows = 1024;
  Cut cut{};
  const auto set_rows = [&](std::int64_t most) {
    cut.rows = even_part(p.M, most, t.rows);
    cut.row_blocks = ceil_div(p.M, cut.rows);
  };
  const auto set_panels = [&](std::int64_t most) {
    cut.cols = even_part(p.N, t.cols * most, t.cols);
    cut.col_blocks = ceil_div(p.N, cut.cols);
  };
  set_rows(many_rows);
  set_panels(t.panels);
  const std::int64_t fewest = ceil_div(p.a.along == 1 ? 96 : 48, t.cols);
  for (std::int64_t panels = t.panels / 2; cut.tasks() < enough_tasks && panels >= fewest; panels /= 2)
    set_panels(panels);
  if (cut.tasks() < enough_tasks) set_rows(std::max(few_rows, ceil_div(p.M, ceil_div(enough_tasks, cut.col_blocks))));
  cut.rows_first = p.N > p.M;
  return cut;
}

/// Where a task finds its strips of a: in the rows of a itself, or packed, either by all tasks together or by the task.
struct Strips {
  const float* at;
  std::int64_t across;           ///< from a row of a to the next; packed: from a strip to the next
  std::int64_t packed_rows = 0;  ///< in a strip; 0: not packed
  std::int64_t row = 0, k = 0;   ///< of the first element that is packed

  Factor strip(std::int64_t first, std::int64_t step) const {
    if (packed_rows == 0) return {at + first * across + step, across, 1};
    return {at + (first - row) / packed_rows * across + (step - k) * packed_rows, 1, packed_rows};
  }
};

/// Packs `steps` k steps of rows [first, last) of a; k is its outer index.
void pack_strips(const TileKernels& t, const Product& p, std::int64_t first, std::int64_t last, std::int64_t k,
                 std::int64_t steps, std::int64_t apart, float* to) {
  t.pack_strips(p.a.at + first + k * p.a.along, p.a.along, steps, last - first, apart, to);
}

/// Packs `steps` k steps of columns [first, last) of b.
void pack_panels(const TileKernels& t, const Product& p, std::int64_t first, std::int64_t last, std::int64_t k,
                 std::int64_t steps, std::int64_t apart, float* to) {
  if (p.b.along == 1)
    t.pack_along(p.b.at + first * p.b.across + k, p.b.across, steps, last - first, apart, to);
  else
    t.pack_across(p.b.at + first + k * p.b.along, p.b.along, steps, last - first, apart, to);
}

/// Operands that the tasks of one product share. What is null, each task packs for itself, one block of k at a time.
struct Shared {
  const Strips* strips = nullptr;
  const float* panels = nullptr;  ///< of all columns; the block that begins at k lies at k * width
  std::int64_t width = 0;         ///< N rounded up to whole panels
};

/// One task: rows [first, last) by columns [col, col_end) of c.
class Task {
 public:
  Task(const TileKernels& t, const Product& p, const Shared& shared, std::int64_t col, std::int64_t col_end)
      : t_(t), p_(p), shared_(shared), col_(col), col_end_(col_end), depth_(even_part(p.K, t.depth, 1)) {}

  void run(std::int64_t first, std::int64_t last) {
    const std::int64_t apart = depth_ * t_.rows + 16, panel = depth_ * t_.cols;
    float *own_panels = nullptr, *own_strips = nullptr;
    if (shared_.panels == nullptr) own_panels = room(0, ceil_div(col_end_ - col_, t_.cols) * panel);
    if (shared_.strips == nullptr) own_strips = room(1, ceil_div(last - first, t_.rows) * apart);
    for (std::int64_t k = 0; k < p_.K; k += depth_) {
      const std::int64_t steps = std::min(depth_, p_.K - k);
      if (own_panels != nullptr) pack_panels(t_, p_, col_, col_end_, k, steps, panel, own_panels);
      if (own_strips != nullptr) pack_strips(t_, p_, first, last, k, steps, apart, own_strips);
      panels_ = own_panels != nullptr ? own_panels : shared_.panels + k * shared_.width + col_ * depth_;
      const Strips strips = own_strips != nullptr ? Strips{own_strips, apart, t_.rows, first, k} : *shared_.strips;
      for (std::int64_t row = first; row < last; row += t_.rows) strip(strips, row, last, k, steps);
    }
  }

 private:
  static float* room(int slot, std::int64_t floats) { return scratch(slot, static_cast<std::size_t>(floats)).data(); }

  /// Rows [row, row + R) of c: the strip against every panel. The last panel prefetches the next strip. The bias is
  /// added with the first block of k, the activation is applied after the last.
  void strip(const Strips& strips, std::int64_t row, std::int64_t last, std::int64_t k, std::int64_t steps) {
    const Factor a = strips.strip(row, k);
    const std::int64_t count = std::min(t_.rows, last - row);
    const float* next = strips.strip(row + t_.rows < last ? row + t_.rows : row, k).at;
    const bool onto = p_.add || k > 0;
    for (std::int64_t col = col_; col < col_end_; col += t_.cols) {
      float* c = p_.c + row * p_.N + col;
      const float* start = onto ? c : p_.bias != nullptr ? p_.bias + col : nullptr;
      t_.tile({a.at, a.across, a.along, col + t_.cols < col_end_ ? a.at : next, panels_ + (col - col_) * depth_, steps,
               start, onto ? p_.N : 0, c, p_.N, count, std::min(t_.cols, col_end_ - col)});
    }
    if (p_.act == Activation::none || k + steps < p_.K) return;
    for (std::int64_t r = row; r < row + count; ++r)
      activation_range(p_.act, p_.c + r * p_.N + col_, p_.y + r * p_.N + col_,
                       static_cast<std::size_t>(col_end_ - col_));
  }

  const TileKernels& t_;
  const Product& p_;
  const Shared& shared_;
  const std::int64_t col_, col_end_, depth_;
  const float* panels_ = nullptr;
};

void run_tasks(Threads& threads, const TileKernels& t, const Product& p, const Cut& cut, const Shared& shared) {
  threads.parallel_for(static_cast<std::size_t>(cut.tasks()), 1, [&](std::size_t task, std::size_t) {
    const auto at = static_cast<std::int64_t>(task);
    const std::int64_t row = cut.row_of(at), col = cut.col_of(at);
    Task(t, p, shared, col, std::min(col + cut.cols, p.N)).run(row, std::min(row + cut.rows, p.M));
  });
}

/// For an `a` with k outermost, and an output so narrow that one task can take all columns: each task packs its own
/// rows of a, which no other task needs. b is packed by all threads together, in pieces of k that take at most
/// `packed_floats` floats.
void multiply_narrow(Threads& threads, const TileKernels& t, const Product& p, std::int64_t packed_floats) {
  constexpr std::int64_t enough_tasks = 16, few_rows = 48, many_rows = 256;
  Cut cut{};
  cut.rows = even_part(p.M, std::clamp(ceil_div(p.M, enough_tasks), few_rows, many_rows), t.rows);
  cut.cols = round_up(p.N, t.cols);
  cut.row_blocks = ceil_div(p.M, cut.rows);
  cut.col_blocks = 1;
  const std::int64_t most = std::max(t.depth, packed_floats / cut.cols / t.depth * t.depth);
  float* panels = scratch(2, static_cast<std::size_t>(std::min(p.K, most) * cut.cols)).data();
  for (std::int64_t first = 0; first < p.K; first += most) {
    Product part = p;
    part.K = std::min(most, p.K - first);
    part.a.at += first * p.a.along;
    part.b.at += first * p.b.along;
    part.add = p.add || first > 0;
    const std::int64_t depth = even_part(part.K, t.depth, 1);
    threads.parallel_for(static_cast<std::size_t>(part.K), static_cast<std::size_t>(depth),
                         [&](std::size_t k, std::size_t end) {
                           const auto at = static_cast<std::int64_t>(k), steps = static_cast<std::int64_t>(end) - at;
                           pack_panels(t, part, 0, p.N, at, steps, depth * t.cols, panels + at * cut.cols);
                         });
    run_tasks(threads, t, part, cut, {nullptr, panels, cut.cols});
  }
}

/// For any other `a` with k outermost: it is packed into strips by all threads together, as many rows at a time as take
/// `packed_floats` floats.
void multiply_flipped(Threads& threads, const TileKernels& t, const Product& p, std::int64_t packed_floats) {
  constexpr std::int64_t together = 512, steps = 128;
  const std::int64_t apart =
      p.K * t.rows + 16;  // + 16: not a multiple of 4 KiB, so that strips do not share cache sets
  const std::int64_t group = together / t.rows * t.rows;
  const std::int64_t rows = even_part(p.M, std::max(group, packed_floats / apart * t.rows), t.rows);
  float* packed = scratch(1, static_cast<std::size_t>(ceil_div(rows, t.rows) * apart)).data();
  for (std::int64_t first = 0; first < p.M; first += rows) {
    Product part = p;
    part.M = std::min(rows, p.M - first);
    part.a.at += first * p.a.across;
    part.c += first * p.N;
    const std::int64_t groups = ceil_div(part.M, group), blocks = ceil_div(p.K, steps);
    threads.parallel_for(static_cast<std::size_t>(groups * blocks), 1, [&](std::size_t task, std::size_t) {
      const std::int64_t row = static_cast<std::int64_t>(task) / blocks * group;
      const std::int64_t k = static_cast<std::int64_t>(task) % blocks * steps;
      pack_strips(t, part, row, std::min(row + group, part.M), k, std::min(steps, p.K - k), apart,
                  packed + row / t.rows * apart + k * t.rows);
    });
    const Strips strips{packed, apart, t.rows};
    run_tasks(threads, t, part, cut_for_tiles(t, part), {&strips});
  }
}

/// Few rows, as in decoding: the time is that of reading b once, so packing it would only add to it.
void multiply_few(Threads& threads, const TileKernels& t, const Product& p) {
  constexpr std::int64_t cols = 64, at_once = 4;
  threads.parallel_for(static_cast<std::size_t>(p.N), cols, [&](std::size_t first, std::size_t last) {
    const auto col = static_cast<std::int64_t>(first), count = static_cast<std::int64_t>(last - first);
    for (std::int64_t row = 0; row < p.M; row += at_once) {
      float* c = p.c + row * p.N + col;
      const float* start = p.add ? c : p.bias != nullptr ? p.bias + col : nullptr;
      t.dots({p.a.at + row * p.a.across, p.a.across, p.b.at + col * p.b.across, p.b.across, p.K, start, p.add ? p.N : 0,
              c, p.N, std::min(at_once, p.M - row), count});
    }
    if (p.act == Activation::none) return;
    for (std::int64_t r = 0; r < p.M; ++r)
      activation_range(p.act, p.c + r * p.N + col, p.y + r * p.N + col, last - first);
  });
}

}  // namespace

void multiply_packed(Threads& threads, const TileKernels& t, const Product& p, std::int64_t packed_floats) {
  constexpr std::int64_t few_rows = 32;
  if (p.M <= few_rows && p.a.along == 1 && p.b.along == 1) return multiply_few(threads, t, p);
  if (p.a.along == 1) {
    const Strips rows{p.a.at, p.a.across};
    return run_tasks(threads, t, p, cut_for_tiles(t, p), {&rows});
  }
  p.N <= t.cols* t.panels ? multiply_narrow(threads, t, p, packed_floats)
                          : multiply_flipped(threads, t, p, packed_floats);
}

}  // namespace tessera
