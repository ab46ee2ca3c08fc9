#pragma once

#include <cstdint>
#include <span>

#include "framework/kernels/threads.h"

namespace tessera {

/// Which two channels of a head turn together: half: (i, i + n/2); interleaved: (2i, 2i + 1), n the rotary channels.
enum class RotaryLayout { half, interleaved };

/// Turn heads in place: for each row and head, pair i by the angle whose cosine and sine are given.
///
///   x           rows of `stride` floats; the heads begin at head_offsets[h] in each row, `rotary_dim` channels turn,
///               the rest of a head is left alone
///   positions   [rows]   row of the tables for each row of x
///   cosine, sine  [positions, rotary_dim / 2]
///
/// `backward` turns the other way: the gradient of the rotation. Source: Su et al., arXiv:2104.09864.
struct RotaryExtents {
  std::int64_t rows, stride, rotary_dim;
  RotaryLayout layout = RotaryLayout::half;
};
void rotary(Threads& threads, RotaryExtents e, std::span<const std::int64_t> head_offsets,
            std::span<const std::int32_t> positions, std::span<const float> cosine, std::span<const float> sine,
            bool backward, std::span<float> x);

}  // namespace tessera
