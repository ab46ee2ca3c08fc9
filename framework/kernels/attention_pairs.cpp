#include "framework/kernels/attention_pairs.h"

#include <algorithm>

namespace tessera::kernels {
namespace {

const std::byte* element(const Elements& x, std::int64_t at) {
  return x.at + at * static_cast<std::int64_t>(size_of(x.type));
}

}  // namespace

PairRows pair_rows(const TileKernels& tiles, const Elements& x, std::int64_t first, std::int64_t row) {
  return pair_rows(tiles, reinterpret_cast<const float*>(element(x, first)), row / 2);
}

PairRows pair_rows(const TileKernels& tiles, const float* words, std::int64_t row) {
  return {.at = words, .row = row, .step = 1, .strip = tiles.rows * row};
}

void multiply_pairs(const TileKernels& t, std::int64_t rows, std::int64_t words, const PairRows& a,
                    const PanelShape& shape, const float* b, float* c, std::int64_t c_row, bool add) {
  for (std::int64_t col = 0; col < shape.cols; col += t.cols) {
    const float* panel = b + shape.at(col);
    const std::int64_t cols = std::min(t.cols, shape.cols - col);
    for (std::int64_t row = 0; row < rows; row += t.rows) {
      const float* strip = a.at + row / t.rows * a.strip;
      float* to = c + row * c_row + col;
      t.tile({.a = strip,
              .a_row = a.row,
              .a_step = a.step,
              .next = strip,
              .b = panel,
              .depth = words,
              .start = add ? to : nullptr,
              .start_row = c_row,
              .c = to,
              .c_row = c_row,
              .rows = std::min(t.rows, rows - row),
              .cols = cols});
    }
  }
}

void pack_pairs_of_rows(const TileKernels& t, const Elements& x, std::int64_t first, std::int64_t row,
                        std::int64_t count, const PanelShape& shape, float* to) {
  const std::int64_t words = (count + 1) / 2;
  t.bfloat16.across(element(x, first), row, count, shape.cols, shape.panel(), to);
  for (std::int64_t col = 0; col < shape.cols; col += t.cols) {
    const std::int64_t width = shape.width(col);
    float* panel = to + shape.at(col);
    std::fill(panel + words * width, panel + shape.depth * width, 0.0F);
  }
}

bool can_multiply_pairs(const AttentionExtents& e, std::initializer_list<DType> types) {
  const auto begins_at_words = [](const HeadRows& rows) {
    return (rows.row_stride | rows.offset | rows.group_stride | rows.head_stride) % 2 == 0;
  };
  return std::all_of(types.begin(), types.end(), [](DType type) { return type == DType::bfloat16; }) && e.D % 2 == 0 &&
         begins_at_words(e.q) && begins_at_words(e.k) && begins_at_words(e.v) && begins_at_words(e.o);
}

void PackedKeys::pack(Threads& threads, const Elements& x, const HeadRows& rows, float* memory) const {
  const auto all = blocks();
  threads.parallel_for(static_cast<std::size_t>(e_.B * e_.G * all), 1, [&](std::size_t task, std::size_t) {
    const auto at = static_cast<std::int64_t>(task), b = at / all / e_.G, g = at / all % e_.G;
    const std::int64_t key = at % all * packed_keys, count = std::min(packed_keys, e_.S - key);
    const auto* from = element(x, row_of(rows, b * e_.S + key, g));
    tiles_.bfloat16.strips(from, rows.row_stride, count, e_.D, strip(), memory + at * block_floats());
  });
}

PairRows PackedKeys::rows(const float* memory, std::int64_t b, std::int64_t g, std::int64_t key) const {
  const std::int64_t block = (b * e_.G + g) * blocks() + key / packed_keys;
  return {.at = memory + block * block_floats(), .row = tiles_.block, .step = tiles_.rows, .strip = strip()};
}

}  // namespace tessera::kernels
