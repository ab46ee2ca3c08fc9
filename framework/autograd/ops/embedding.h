#pragma once

#include "framework/autograd/tape.h"

namespace tessera {

/// y [B, T, C] = words[tokens] + positions_table[positions], in `type`; the second table may be nullptr: none. `tokens`
/// and `positions`, [B * T], must stay as they are until the backward pass is done.
Var embedding(Tape& tape, const Shape& batch, std::span<const std::int32_t> tokens, Leaf& words,
              std::span<const std::int32_t> positions, Leaf* position_table, DType type = DType::float32);

}  // namespace tessera
