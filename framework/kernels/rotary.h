#pragma once

#include <cstdint>
#include <span>

#include "framework/kernels/elements.h"
#include "framework/kernels/threads.h"

namespace tessera::kernels {

/// Which two channels of a head form the rotated pair i, for n rotary dimensions:
///
///   half          i and i + n / 2   GPT-NeoX, and Llama in Transformers
///   interleaved   2 i and 2 i + 1   GPT-J; --rotary-interleaved in Megatron-LM
enum class RotaryLayout { half, interleaved };

/// Extents of rotary(): x has `rows` rows of `stride` elements, and the first `rotary_dim` channels of each head, an
/// even number, are rotated.
struct RotaryExtents {
  std::int64_t rows, stride, rotary_dim;
  RotaryLayout layout = RotaryLayout::half;
};
/// Applies rotary position embedding to heads of x, in place. Pair i of a head, (a, b), becomes
/// (a cos - b sin, b cos + a sin), where the angle depends on the row's position and on i.
///
///   x              [rows, stride]   float32, bfloat16 or float16; rotated in fp32 and rounded once
///   head_offsets   [heads]          index in a row at which each head begins; other elements stay unchanged
///   positions      [rows]           row of the tables for each row of x
///   cosine, sine   [table rows, rotary_dim / 2]
///
/// `backward` rotates by the negative angle, which turns the gradient of the result into the gradient of the input.
/// Results do not depend on the number of threads. Throws ShapeError if a size differs, a head leaves its row, or a
/// position is outside the tables; BugError if rotary_dim is odd or 0. Source: Su et al., arXiv:2104.09864.
void rotary(Threads& threads, RotaryExtents e, std::span<const std::int64_t> head_offsets,
            std::span<const std::int32_t> positions, std::span<const float> cosine, std::span<const float> sine,
            bool backward, const MutableElements& x);

}  // namespace tessera::kernels
