#include "framework/kernels/gemm_packed.h"

#include <algorithm>

#include "framework/kernels/activation_range.h"
#include "framework/kernels/gemm_cut.h"

namespace tessera {
namespace {

std::int64_t round_up(std::int64_t x, std::int64_t unit) { return ceil_div(x, unit) * unit; }

/// Some sixteen tasks or more where the extents allow it, so that a few threads share them evenly. Few rows in a task
/// make packing b dear, which is done again for each block of rows; few columns let strips of a pass more often, which
/// costs less, and least when they are packed.
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

/// Where a task finds its strips of a: packed for all tasks, or in the rows of a itself.
struct Strips {
  Factor rows;                    ///< a, when k is its inner index
  const float* packed = nullptr;  ///< else strip s of `packed`, [K, R], at s * apart
  std::int64_t apart = 0;

  Factor strip(std::int64_t row, std::int64_t k, std::int64_t R) const {
    if (packed != nullptr) return {packed + row / R * apart + k * R, 1, R};
    return {rows.at + row * rows.across + k, rows.across, 1};
  }
};

/// One block of the output; its part of b is packed here, a block of k at a time.
class Task {
 public:
  Task(const TileKernels& t, const Product& p, const Strips& strips, std::int64_t col, std::int64_t col_end)
      : t_(t), p_(p), strips_(strips), col_(col), col_end_(col_end), depth_(even_part(p.K, t.depth, 1)) {
    panels_ = scratch(0, static_cast<std::size_t>(depth_ * round_up(col_end - col, t.cols))).data();
  }

  void run(std::int64_t first, std::int64_t last) {
    for (std::int64_t k = 0; k < p_.K; k += depth_) {
      const std::int64_t steps = std::min(depth_, p_.K - k);
      pack_panels(k, steps);
      for (std::int64_t row = first; row < last; row += t_.rows) strip(row, last, k, steps);
    }
  }

 private:
  std::int64_t width(std::int64_t col) const { return round_up(std::min(t_.cols, col_end_ - col), t_.vector); }

  void pack_panels(std::int64_t k, std::int64_t steps) {
    const float* from = p_.b.at + k * p_.b.along;
    for (std::int64_t col = col_; col < col_end_; col += t_.cols) {
      const std::int64_t cols = std::min(t_.cols, col_end_ - col);
      float* to = panels_ + (col - col_) * depth_;
      if (p_.b.along == 1)
        t_.pack_along(from + col * p_.b.across, p_.b.across, steps, cols, width(col), to);
      else
        t_.pack_across(from + col, p_.b.along, steps, cols, width(col), to);
    }
  }

  void strip(std::int64_t row, std::int64_t last, std::int64_t k, std::int64_t steps) {
    const Factor a = strips_.strip(row, k, t_.rows);
    const std::int64_t count = std::min(t_.rows, last - row);
    const float* next = strips_.strip(row + t_.rows < last ? row + t_.rows : row, k, t_.rows).at;
    const bool onto = p_.add || k > 0;
    for (std::int64_t col = col_; col < col_end_; col += t_.cols) {
      float* c = p_.c + row * p_.N + col;
      const float* start = onto ? c : p_.bias != nullptr ? p_.bias + col : nullptr;
      t_.tile({a.at, a.across, a.along, col + t_.cols < col_end_ ? a.at : next, panels_ + (col - col_) * depth_, steps,
               start, onto ? p_.N : 0, c, p_.N, count, std::min(t_.cols, col_end_ - col)});
    }
    if (p_.act == Activation::none || k + steps < p_.K) return;
    for (std::int64_t r = row; r < row + count; ++r)
      gelu_range(p_.act, p_.c + r * p_.N + col_, p_.y + r * p_.N + col_, static_cast<std::size_t>(col_end_ - col_));
  }

  const TileKernels& t_;
  const Product& p_;
  const Strips& strips_;
  const std::int64_t col_, col_end_, depth_;
  float* panels_;
};

void multiply_strips(Threads& threads, const TileKernels& t, const Product& p, const Strips& strips) {
  const Cut cut = cut_for_tiles(t, p);
  threads.parallel_for(static_cast<std::size_t>(cut.tasks()), 1, [&](std::size_t task, std::size_t) {
    const auto at = static_cast<std::int64_t>(task);
    const std::int64_t row = cut.row_of(at), col = cut.col_of(at);
    Task(t, p, strips, col, std::min(col + cut.cols, p.N)).run(row, std::min(row + cut.rows, p.M));
  });
}

/// a with k outermost: packed into strips by all threads together, so many rows at a time that the strips take 16 MiB.
void multiply_flipped(Threads& threads, const TileKernels& t, const Product& p) {
  constexpr std::int64_t most_floats = std::int64_t{4} << 20, together = 512, steps = 128;
  const std::int64_t apart = p.K * t.rows + 16;  // not a multiple of 4 KiB: strips must not meet in the sets of a cache
  const std::int64_t rows = even_part(p.M, std::max(together, most_floats / apart * t.rows), t.rows);
  const auto packed = scratch(1, static_cast<std::size_t>(ceil_div(rows, t.rows) * apart));
  for (std::int64_t first = 0; first < p.M; first += rows) {
    Product part = p;
    part.M = std::min(rows, p.M - first);
    part.a.at += first * p.a.across;
    part.c += first * p.N;
    if (part.y != nullptr) part.y += first * p.N;
    const std::int64_t group = together / t.rows * t.rows, groups = ceil_div(part.M, group),
                       blocks = ceil_div(p.K, steps);
    threads.parallel_for(static_cast<std::size_t>(groups * blocks), 1, [&](std::size_t task, std::size_t) {
      const std::int64_t row = static_cast<std::int64_t>(task) / blocks * group;
      const std::int64_t k = static_cast<std::int64_t>(task) % blocks * steps;
      t.pack_strips(part.a.at + row * p.a.across + k * p.a.along, p.a.along, std::min(steps, p.K - k),
                    std::min(group, part.M - row), apart,
                    &packed[static_cast<std::size_t>(row / t.rows * apart + k * t.rows)]);
    });
    multiply_strips(threads, t, part, {{}, packed.data(), apart});
  }
}

/// Few rows, as in decoding: reading b once is all the work, so it is not packed.
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
    for (std::int64_t r = 0; r < p.M; ++r) gelu_range(p.act, p.c + r * p.N + col, p.y + r * p.N + col, last - first);
  });
}

}  // namespace

void multiply_packed(Threads& threads, const TileKernels& t, const Product& p) {
  constexpr std::int64_t few_rows = 32;
  if (p.M <= few_rows && p.a.along == 1 && p.b.along == 1) return multiply_few(threads, t, p);
  if (p.a.along == 1) return multiply_strips(threads, t, p, {p.a});
  multiply_flipped(threads, t, p);
}

}  // namespace tessera
