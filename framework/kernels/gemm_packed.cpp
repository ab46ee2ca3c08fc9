#include "framework/kernels/gemm_packed.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "framework/base/error.h"
#include "framework/kernels/gemm_stored.h"
#include "framework/kernels/gemm_task.h"
#include "framework/kernels/panels_ahead.h"
#include "framework/kernels/scratch.h"

namespace tessera::kernels {
namespace {

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

/// For an `a` with k outermost and more rows than the output has columns: as multiply_narrow, with all of b packed. A
/// task multiplies its strips, which stay in the L2 cache, with one group of panels after the other. Packed into strips
/// by all threads together, `a` would go through memory.
void multiply_tall(Threads& threads, const TileKernels& t, const MatrixProduct& p) {
  constexpr std::int64_t enough_tasks = 16, few_rows = 48;
  const std::int64_t least = std::min(few_rows, t.strip_rows);
  TaskGrid grid{};
  grid.rows = even_part(p.M, std::clamp(ceil_div(p.M, enough_tasks), least, t.strip_rows), t.rows);
  grid.cols = round_up(p.N, t.cols);
  grid.row_blocks = ceil_div(p.M, grid.rows);
  grid.col_blocks = 1;
  const std::int64_t words = words_in(t, p.K), depth = even_part(words, t.depth, t.block), panel = depth * t.cols;
  const std::int64_t width = t.cols * t.panels, groups = ceil_div(p.N, width), blocks = ceil_div(words, depth);
  const Scratch memory(static_cast<std::size_t>(blocks * depth * grid.cols));
  float* panels = memory.data();
  threads.parallel_for(static_cast<std::size_t>(groups * blocks), 1, [&](std::size_t task, std::size_t) {
    const std::int64_t k = static_cast<std::int64_t>(task) / groups * depth,
                       col = static_cast<std::int64_t>(task) % groups * width;
    pack_panels(t, p, col, std::min(col + width, p.N), k, std::min(depth, words - k), panel,
                panels + k * grid.cols + col * depth);
  });
  matrix_product(threads, t, p, grid, {nullptr, panels, grid.cols});
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
  if (p.N <= (t.narrow > 0 ? t.narrow : t.cols * t.panels)) return multiply_narrow(threads, t, p, packed_floats);
  const std::int64_t all_of_b = round_up(words_in(t, p.K), t.depth) * round_up(p.N, t.cols);
  const bool tall = t.strip_rows > 0 && p.M >= p.N && all_of_b <= packed_floats;
  tall ? multiply_tall(threads, t, p) : multiply_flipped(threads, t, p, packed_floats);
}

PackedOperands::PackedOperands(Threads& threads, const TileKernels& t, const MatrixProduct& p, std::int64_t tasks)
    : t_(t), p_(p), tasks_(tasks), apart_(round_up(words_in(t, p.K), t.block) * t.rows + 16) {
  must(!takes_few_rows(t, p), "a product of few rows packs nothing");
  const std::int64_t words = words_in(t, p.K), depth = even_part(words, t.depth, t.block),
                     width = round_up(p.N, t.cols);
  panels_ = Storage(static_cast<std::size_t>(round_up(words, depth) * width) * sizeof(float));
  float* const panels = panels_.floats().data();
  threads.parallel_for(static_cast<std::size_t>(words), static_cast<std::size_t>(depth),
                       [&](std::size_t first, std::size_t last) {
                         const auto k = static_cast<std::int64_t>(first), steps = static_cast<std::int64_t>(last) - k;
                         pack_panels(t, p, 0, p.N, k, steps, depth * t.cols, panels + k * width);
                       });
  if (p.a.along == 1) return;
  strips_ = Storage(static_cast<std::size_t>(ceil_div(p.M, t.rows) * apart_) * sizeof(float));
  pack_strips(t, p, 0, p.M, 0, words, apart_, strips_.floats().data());
}

void PackedOperands::multiply(Threads& threads) const {
  const Strips strips{.at = strips_.floats().data(), .across = apart_, .packed_rows = t_.rows, .block = t_.block};
  matrix_product(threads, t_, p_, grid_of_tiles(t_, p_, tasks_),
                 {p_.a.along == 1 ? nullptr : &strips, panels_.floats().data(), round_up(p_.N, t_.cols)});
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
