#include "framework/kernels/gemm_packed.h"

#include <algorithm>

#include "framework/kernels/gemm_cut.h"
#include "framework/kernels/gemm_epilogue.h"

namespace tessera {
namespace {

constexpr std::int64_t packed_rows =
    64;  // of a, packed together: long enough runs, small beside the panels in the cache

std::int64_t round_up(std::int64_t x, std::int64_t unit) { return ceil_div(x, unit) * unit; }

/// Some sixteen tasks or more where the extents allow it, so that a few threads share them evenly. Few rows in a task
/// make packing b dear; few columns make reading a dear.
Cut cut_for_tiles(const TileKernels& t, const Product& p) {
  constexpr std::int64_t enough_tasks = 16, few_rows = 256, many_rows = 1024;
  Cut cut{};
  cut.cols = even_part(p.N, t.cols * t.panels, t.cols);
  cut.col_blocks = ceil_div(p.N, cut.cols);
  cut.rows = even_part(p.M, many_rows, t.rows);
  cut.row_blocks = ceil_div(p.M, cut.rows);
  if (cut.tasks() < enough_tasks && cut.cols > 2 * t.cols) {
    cut.cols = even_part(p.N, t.cols * 2, t.cols);
    cut.col_blocks = ceil_div(p.N, cut.cols);
  }
  if (cut.tasks() < enough_tasks) {
    const std::int64_t wanted = ceil_div(enough_tasks, cut.col_blocks);
    cut.rows = even_part(p.M, std::max(few_rows, ceil_div(p.M, wanted)), t.rows);
    cut.row_blocks = ceil_div(p.M, cut.rows);
  }
  cut.rows_first = p.N > p.M;
  return cut;
}

/// One block of the output, and where its packed factors lie.
class Task {
 public:
  Task(const TileKernels& t, const Product& p, std::int64_t row, std::int64_t row_end, std::int64_t col,
       std::int64_t col_end)
      : t_(t), p_(p), row_(row), row_end_(row_end), col_(col), col_end_(col_end) {
    depth_ = even_part(p.K, t.depth, 1);
    panels_ = scratch(0, static_cast<std::size_t>(depth_ * round_up(col_end - col, t.cols))).data();
    if (p.a.along != 1) strips_ = scratch(1, static_cast<std::size_t>(depth_ * packed_rows)).data();
  }

  void run() {
    for (std::int64_t k = 0; k < p_.K; k += depth_) {
      const std::int64_t steps = std::min(depth_, p_.K - k);
      pack_panels(k, steps);
      for (std::int64_t row = row_; row < row_end_; row += packed_rows)
        rows(row, std::min(row + packed_rows, row_end_), k, steps);
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

  void rows(std::int64_t first, std::int64_t last, std::int64_t k, std::int64_t steps) {
    const bool pack = p_.a.along != 1;
    if (pack)
      for (std::int64_t row = first; row < last; row += t_.rows)
        t_.pack_strip(p_.a.at + row + k * p_.a.along, p_.a.along, steps, std::min(t_.rows, last - row),
                      strips_ + (row - first) * depth_);
    for (std::int64_t row = first; row < last; row += t_.rows) {
      const std::int64_t count = std::min(t_.rows, last - row);
      if (pack)
        strip({strips_ + (row - first) * depth_, 1, t_.rows}, row, count, k, steps);
      else
        strip({p_.a.at + row * p_.a.across + k, p_.a.across, 1}, row, count, k, steps);
    }
  }

  void strip(Factor a, std::int64_t row, std::int64_t count, std::int64_t k, std::int64_t steps) {
    for (std::int64_t col = col_; col < col_end_; col += t_.cols) {
      float* c = p_.c + row * p_.N + col;
      const bool onto = p_.add || k > 0;
      const float* start = onto ? c : p_.bias != nullptr ? p_.bias + col : nullptr;
      t_.tile({a.at, a.across, a.along, panels_ + (col - col_) * depth_, steps, start, onto ? p_.N : 0, c, p_.N, count,
               std::min(t_.cols, col_end_ - col)});
    }
    if (p_.act == Activation::none || k + steps < p_.K) return;
    for (std::int64_t r = row; r < row + count; ++r)
      activate(p_.act, p_.c + r * p_.N + col_, p_.y + r * p_.N + col_, col_end_ - col_);
  }

  const TileKernels& t_;
  const Product& p_;
  const std::int64_t row_, row_end_, col_, col_end_;
  std::int64_t depth_;
  float *panels_, *strips_ = nullptr;
};

}  // namespace

void multiply_packed(Threads& threads, const TileKernels& kernels, const Product& p) {
  const Cut cut = cut_for_tiles(kernels, p);
  threads.parallel_for(static_cast<std::size_t>(cut.tasks()), 1, [&](std::size_t task, std::size_t) {
    const auto at = static_cast<std::int64_t>(task);
    const std::int64_t row = cut.row_of(at), col = cut.col_of(at);
    Task(kernels, p, row, std::min(row + cut.rows, p.M), col, std::min(col + cut.cols, p.N)).run();
  });
}

}  // namespace tessera
