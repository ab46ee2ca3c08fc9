#pragma once

#include <cstdint>
#include <span>

#include "framework/kernels/elements.h"
#include "framework/kernels/linear.h"
#include "framework/kernels/threads.h"

namespace tessera::kernels {

// Moves tokens to the experts that they chose and back. A choice is one of the topk experts of one token; a row is one
// choice as the experts see it: rows are sorted by expert, and by token within an expert. T tokens, K = topk, E
// experts, R rows, h channels.
//
//   chosen         [T, K]   expert of each choice; negative: the choice was dropped and has no row
//   first_row      [E + 1]  rows of expert e are [first_row[e], first_row[e + 1]); R = first_row[E]
//   token_of_row   [R]
//   row_of_choice  [T, K]   -1 for a dropped choice
//
// All functions throw ShapeError if a size differs from these shapes. Results do not depend on the number of threads.

/// Sorts the choices. token_of_row has room for T * K rows.
void sort_choices(std::int64_t topk, std::span<const std::int32_t> chosen, std::span<std::int64_t> first_row,
                  std::span<std::int32_t> token_of_row, std::span<std::int32_t> row_of_choice);

/// How choices are dropped when an expert is chosen more often than its capacity allows.
enum class DropPolicy {
  probs,    ///< an expert keeps the choices with the largest weights; of equal ones the earlier token
  position  ///< Megatron-LM's `position`: torch's top-k over a column of zeros and ones, whose ties fall as
            ///< std::nth_element leaves them
};

/// Rows that each expert may have: ceil(tokens * topk / experts * factor), at most `tokens`.
std::int64_t expert_capacity(std::int64_t tokens, std::int64_t topk, std::int64_t experts, double factor);

/// Drops choices so that every expert keeps at most `capacity`: sets their `chosen` to -1 and their `weights` to 0.
/// Tokens are [B, S] here and are numbered s * B + b, as in Megatron-LM, for DropPolicy::position and between equal
/// weights.
///
///   weights   [T, K]
void drop_choices(DropPolicy policy, std::int64_t experts, std::int64_t topk, std::int64_t capacity,
                  std::int64_t sequences, std::span<std::int32_t> chosen, std::span<float> weights);

/// rows[r] = x[token_of_row[r]].
///
///   x      [T, h]   any floating-point type
///   rows   [R, h]   the same type
void gather_rows(Threads& threads, std::int64_t width, std::span<const std::int32_t> token_of_row, const Elements& x,
                 const MutableElements& rows);

/// y[t] = sum over k of rows[row_of_choice[t, k]], or y[t] += the sum when `add`. A token without rows gets zeros.
///
///   rows   [R, h]   fp32
///   y      [T, h]   any type; the sum is fp32 in the order of k, and rounded once
void sum_rows(Threads& threads, std::int64_t topk, std::int64_t width, std::span<const std::int32_t> row_of_choice,
              std::span<const float> rows, const MutableElements& y, bool add);

/// rows[r] = weight[r] * rows[r], rounded once.
void scale_rows(Threads& threads, std::int64_t width, std::span<const float> weight, const MutableElements& rows);
/// products[r] = dot(a[r], b[r]), summed in double.
///
///   a, b   [R, width]
void dot_rows(Threads& threads, std::int64_t width, const Elements& a, const Elements& b, std::span<float> products);

/// The activation of an expert, times the weight of each row: y[r] = weight[r] * act(x[r]), for a gated one
/// weight[r] * act(gate) * up. Computed in fp32 and rounded once.
///
///   x        [R, width], gated [R, 2 * width] with rows [gate | up]
///   weight   [R]
///   y        [R, width]
void weighted_activation_forward(Threads& threads, Activation act, bool gated, std::int64_t width, const Elements& x,
                                 std::span<const float> weight, const MutableElements& y);
/// Its gradients: dx written, dweight written.
///
///   dy   [R, width]
void weighted_activation_backward(Threads& threads, Activation act, bool gated, std::int64_t width, const Elements& dy,
                                  const Elements& x, std::span<const float> weight, const MutableElements& dx,
                                  std::span<float> dweight);

}  // namespace tessera::kernels
