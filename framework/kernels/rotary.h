#pragma once

#include <cstdint>
#include <span>

#include "framework/kernels/elements.h"
#include "framework/kernels/threads.h"

namespace tessera::kernels {

/// Which two channels of a head form a rotated pair i, for n rotary channels: half (GPT-NeoX, and Llama in
/// Transformers): i and i + n / 2; interleaved (GPT-J, --rotary-interleaved in Megatron): 2 i and 2 i + 1.
enum class RotaryLayout { half, interleaved };

/// Extents of rotary().
struct RotaryExtents {
  std::int64_t rows, stride, rotary_dim;
  RotaryLayout layout = RotaryLayout::half;
};
/// Apply rotary position embedding to the heads of x, in place. Pair i of a head, (a, b), becomes
/// (a cos - b sin, b cos + a sin), with the angle of the row's position and of pair i.
///
///   x              [rows, stride]   each head begins at one of `head_offsets` in the row; its first `rotary_dim`
///                                   channels are rotated, the others stay unchanged
///   head_offsets   [heads]          in floats from the beginning of a row
///   positions      [rows]           row of the tables for each row of x
///   cosine, sine   [table rows, rotary_dim / 2]
///
/// `backward` rotates by the negative angle, which is the gradient. x is of any type; heads are rotated in fp32. Throws
/// ShapeError if a size differs, a head leaves its row or a position exceeds the tables; BugError for an odd
/// rotary_dim. Source: Su et al., arXiv:2104.09864.
void rotary(Threads& threads, RotaryExtents e, std::span<const std::int64_t> head_offsets,
            std::span<const std::int32_t> positions, std::span<const float> cosine, std::span<const float> sine,
            bool backward, const MutableElements& x);

}  // namespace tessera::kernels
