#pragma once

#include <cstdint>

namespace tessera {

/// One register tile: c = start + a b over `depth` steps of the summed index, `rows` <= R, `cols` <= C of the table.
///
///   a       element (r, k) at a[r * a_row + k * a_step]; (a_row, a_step) is (any, 1): rows where they lie, or
///           (1, R): a strip packed by TileKernels::pack_strips
///   b       a packed panel, [depth, width], width being `cols` rounded up to a whole vector; 64-byte aligned
///   next    the a of a later call, to be fetched into the cache by this one; or a again
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

/// A few rows against many: c[r, j] = start[j] + sum over k of a[r, k] b[j, k], k the inner index of both, nothing
/// packed.
struct DotsCall {
  const float* a;
  std::int64_t a_row;
  const float* b;
  std::int64_t b_row, depth;
  const float* start;  ///< added; null: zero. start_row as in TileCall
  std::int64_t start_row;
  float* c;
  std::int64_t c_row;
  std::int64_t rows, cols;  ///< rows <= 4
};

/// What one instruction set offers to the blocked product of gemm_packed.h. The functions live in files compiled for
/// that set alone, so those include nothing that could be shared with, and linked into, code for another machine.
struct TileKernels {
  std::int64_t rows, cols;  ///< R and C of the full tile
  std::int64_t vector;      ///< floats in a vector: panels are that much or a multiple wide
  std::int64_t
      depth;  ///< steps of k in a block: a panel streams from the second-level cache, a strip stays in the first
  std::int64_t panels;  ///< at most, in one task: their block fits the second-level cache

  void (*tile)(const TileCall& call);
  /// Panels of b, `panel` floats apart, each [depth, C], the last as wide as whole vectors hold its columns:
  /// dst[(j / C) * panel + k * width + j % C] = src[j * across + k], j < cols, padded with zeros.
  void (*pack_along)(const float* src, std::int64_t across, std::int64_t depth, std::int64_t cols, std::int64_t panel,
                     float* dst);
  /// The same from src[k * along + j]. k runs outermost, so that the source is read in long runs.
  void (*pack_across)(const float* src, std::int64_t along, std::int64_t depth, std::int64_t cols, std::int64_t panel,
                      float* dst);
  /// Strips of a, `strip` floats apart, padded with zeros to R rows:
  /// dst[(r / R) * strip + k * R + r % R] = src[k * along + r], r < rows. k runs outermost.
  void (*pack_strips)(const float* src, std::int64_t along, std::int64_t depth, std::int64_t rows, std::int64_t strip,
                      float* dst);
  void (*dots)(const DotsCall& call);
};

/// Defined where the compiler can make them; to be called only on a machine that has the set.
const TileKernels& tiles_avx2();
const TileKernels& tiles_avx512();

}  // namespace tessera
