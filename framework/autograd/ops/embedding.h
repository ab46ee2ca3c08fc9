#pragma once

#include "framework/autograd/tape.h"

namespace tessera::autograd {

/// y = words[tokens] + position_table[positions].
///
///   batch               {B, T}
///   tokens, positions   [B * T]   row of each table; must stay unchanged until the backward pass is done
///   words               [V, C]
///   position_table      [P, C], or nullptr: no learned positions; `positions` is then not read
///   result              [B, T, C] in `type`
///
/// Keeps nothing else. The gradients of the tables are accumulated in fp32 in their leaves; the token `padding` adds
/// nothing to that of `words`. Throws ShapeError for a
/// token or position outside its table.
Var embedding(Tape& tape, const Shape& batch, std::span<const std::int32_t> tokens, Leaf& words,
              std::span<const std::int32_t> positions, Leaf* position_table, DType type = DType::float32,
              std::int64_t padding = -1);

/// y[b, t] = column tokens[b, t] of `table` [rank, V], or of this rank's columns of it, from `first` on: zeros for
/// other tokens. In fp32, [B, T, rank]. Otherwise as embedding(). Throws ShapeError for a token outside [0,
/// vocabulary).
Var embedded_columns(Tape& tape, const Shape& batch, std::span<const std::int32_t> tokens, Leaf& table,
                     std::int64_t vocabulary, std::int64_t first, std::int64_t padding = -1);

}  // namespace tessera::autograd
