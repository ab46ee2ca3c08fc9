#pragma once

#include <span>

#include "framework/autograd/tape.h"
#include "framework/nn/pass.h"
#include "framework/nn/rotary_embedding.h"

namespace tessera::model {

// Rotary embedding of positions with several axes: each rotary pair of a head turns by the position on one of them. The
// results are in memory of the tape.

/// mRoPE: of the pairs of a head, in order, sections[a] turn by the position on axis a (time, row, column), each with
/// the frequency of its own pair. Source: Wang et al., arXiv:2409.12191.
///
///   tables      of the pairs, for each position; without heads
///   positions   [samples, axes, length], with one axis (the same for all pairs) or one for each section
///   rounded     type to which cosines and sines are rounded
///
/// Throws ShapeError for a position outside the tables.
nn::TokenAngles sectioned_angles(autograd::Tape& tape, const autograd::RotaryTables& tables,
                                 std::span<const std::int64_t> sections, std::span<const std::int32_t> positions,
                                 std::int64_t samples, std::int64_t length, DType rounded);

/// Rotary embedding of the patches of an image: half of the pairs of a head turn by the row of the patch, half by its
/// column, both halves with the same frequencies.
///
///   rotary_dim      rotary dimensions of a head, a multiple of 4
///   base            base of the frequencies: frequency i of rotary_dim / 4 is base^(-4 i / rotary_dim)
///   rows, columns   [patches]: position of each patch, not negative
nn::TokenAngles grid_angles(autograd::Tape& tape, std::int64_t rotary_dim, double base,
                            std::span<const std::int32_t> rows, std::span<const std::int32_t> columns);

}  // namespace tessera::model
