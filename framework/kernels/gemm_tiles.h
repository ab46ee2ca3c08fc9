#pragma once

#include <cstdint>

namespace tessera {

/// Arguments of one register tile: c = start + a b over `depth` steps of the summed index k. The tile has `rows` <= R
/// rows and `cols` <= C columns, R and C being those of TileKernels.
///
///   a       element (r, k) at a[r * a_row + k * a_step]; (a_row, a_step) is (any, 1): rows in place, or (1, R): a
///           strip packed by TileKernels::pack_strips
///   next    the `a` of a later call, which this one prefetches; or `a` again
///   b       a packed panel [depth, width], where width is `cols` rounded up to whole vectors; 64-byte aligned
///   start   added to the sum; null: zero. start_row 0 adds one row to all rows (the bias). `start` may be c
///   c       rows c_row floats apart
///
/// Row strides are in floats.
///   start   added to the sum; null: zero. start_row 0 adds one row to all: the bias. start may be c
struct TileCall {
  const float* a;
  std::int64_t a_row, a_step;
  const float* next;
  const float* b;
  std::int64_t depth;
  const float* start;
  std::int64_t start_row;
  float* c;
  std::int64_t c_row;
  std::int64_t rows, cols;
};

/// Arguments of a product of few rows with many: c[r, j] = start[j] + sum over k of a[r, k] b[j, k]. k is the inner
/// index of both operands and nothing is packed: for decoding, where each element of b is used once.
struct DotsCall {
  const float* a;
  std::int64_t a_row;
  const float* b;
  std::int64_t b_row, depth;
  const float* start;  ///< as in TileCall, with start_row
  std::int64_t start_row;
  float* c;
  std::int64_t c_row;
  std::int64_t rows, cols;  ///< rows <= 4
};

/// What one instruction set provides for the blocked product of gemm_packed.cpp. The functions are in files compiled
/// for that set alone. Those files include no header with inline code: the linker could otherwise keep their copy of a
/// shared inline function, and a machine without the instruction set would crash in it.
struct TileKernels {
  std::int64_t rows, cols;  ///< R and C of the full tile
  std::int64_t vector;      ///< floats in a vector; panels are a multiple of that wide
  std::int64_t depth;       ///< k steps in a block: a panel is read from the L2 cache, a strip stays in the L1 cache
  std::int64_t panels;      ///< maximum panels of one task: one k block of them fits the L2 cache

  void (*tile)(const TileCall& call);
  /// Pack b when k is its inner index: into panels `panel` floats apart, each [depth, C]; the last one is as wide as
  /// its columns need in whole vectors. dst[(j / C) * panel + k * width + j % C] = src[j * across + k], j < cols;
  /// padded with zeros.
  void (*pack_along)(const float* src, std::int64_t across, std::int64_t depth, std::int64_t cols, std::int64_t panel,
                     float* dst);
  /// The same when k is the outer index: from src[k * along + j]. k runs outermost, so that src is read contiguously.
  void (*pack_across)(const float* src, std::int64_t along, std::int64_t depth, std::int64_t cols, std::int64_t panel,
                      float* dst);
  /// Pack a, when k is its outer index: into strips `strip` floats apart, padded with zeros to R rows.
  /// dst[(r / R) * strip + k * R + r % R] = src[k * along + r], r < rows. k runs outermost, as above.
  void (*pack_strips)(const float* src, std::int64_t along, std::int64_t depth, std::int64_t rows, std::int64_t strip,
                      float* dst);
  void (*dots)(const DotsCall& call);
};

/// The kernels of one set. Call them only on a machine that has it (available_isas()).
const TileKernels& tiles_avx2();
const TileKernels& tiles_avx512();

}  // namespace tessera
