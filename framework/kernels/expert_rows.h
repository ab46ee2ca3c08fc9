#pragma once

#include <cstdint>
#include <span>

#include "framework/kernels/activation.h"
#include "framework/kernels/elements.h"
#include "framework/kernels/linear.h"
#include "framework/kernels/threads.h"

namespace tessera::kernels {

// Moves tokens to the experts that they chose and back. A choice is one of the topk experts of one token. Each choice
// that is not dropped has one row in the input and output of the experts; rows are sorted by expert, and by token
// within an expert. T tokens, K = topk, E experts, R rows, h hidden size.
//
//   chosen         [T, K]   expert of each choice; negative: the choice was dropped and has no row
//   first_row      [E + 1]  rows of expert e are [first_row[e], first_row[e + 1]); R = first_row[E]
//   token_of_row   [R]      index of the token that a row belongs to
//   row_of_choice  [T, K]   row of each choice; -1 for a dropped choice
//
// All functions but expert_capacity throw ShapeError if the sizes of their arguments contradict each other; indices are
// not checked. Results do not depend on the number of threads.

/// Sorts the choices: writes first_row, token_of_row and row_of_choice. The span `token_of_row` has room for T * K
/// rows.
void sort_choices(std::int64_t topk, std::span<const std::int32_t> chosen, std::span<std::int64_t> first_row,
                  std::span<std::int32_t> token_of_row, std::span<std::int32_t> row_of_choice);

/// How choices are dropped when an expert is chosen more often than its capacity allows.
enum class DropPolicy {
  probs,    ///< an expert keeps the choices with the largest weights; among equal weights, the earlier tokens
  position  ///< Megatron-LM's `position`: torch's top-k over a column of zeros and ones, so std::nth_element decides
            ///< which of the equal values are kept
};

/// Capacity of an expert: the maximum number of its rows, ceil(tokens * topk / experts * factor), at most `tokens`.
std::int64_t expert_capacity(std::int64_t tokens, std::int64_t topk, std::int64_t experts, double factor);

/// Drops choices so that every expert keeps at most `capacity` of them: sets `chosen` to -1 and `weights` to 0 for each
/// dropped choice. Tokens are [B, S] with B = `sequences`. Where the order of tokens decides (DropPolicy::position, or
/// equal weights), token (b, s) has the number s * B + b, as in Megatron-LM. Runs in the calling thread.
///
///   chosen    [T, K]   changed in place
///   weights   [T, K]   changed in place
void drop_choices(DropPolicy policy, std::int64_t experts, std::int64_t topk, std::int64_t capacity,
                  std::int64_t sequences, std::span<std::int32_t> chosen, std::span<float> weights);

/// rows[r] = x[token_of_row[r]].
///
///   x      [T, h]   float32, bfloat16 or float16
///   rows   [R, h]   the type of x
void gather_rows(Threads& threads, std::int64_t width, std::span<const std::int32_t> token_of_row, const Elements& x,
                 const MutableElements& rows);

/// y[t] = sum over k of rows[row_of_choice[t, k]], or y[t] += the sum if `add`. The sum of a token without rows is 0.
///
///   rows   [R, h]   fp32
///   y      [T, h]   float32, bfloat16 or float16; the sum is fp32 in ascending order of k, and rounded once
void sum_rows(Threads& threads, std::int64_t topk, std::int64_t width, std::span<const std::int32_t> row_of_choice,
              std::span<const float> rows, const MutableElements& y, bool add);

/// rows[r] *= weight[r], in place, rounded once. rows [R, width], weight [R].
void scale_rows(Threads& threads, std::int64_t width, std::span<const float> weight, const MutableElements& rows);
/// products[r] = dot(a[r], b[r]). Short partial sums are fp32; they are added in double.
///
///   a, b       [R, width]
///   products   [R]
void dot_rows(Threads& threads, std::int64_t width, const Elements& a, const Elements& b, std::span<float> products);

/// The activation of an expert, multiplied by the weight of each row: y[r] = weight[r] * act(x[r]), or
/// y[r] = weight[r] * act(gate) * up with the bounds and the offset of `form` if `gated`. Computed in fp32 and rounded
/// once.
///
///   x        [R, width], or [R, 2 * width] with rows [gate | up] if `gated`
///   weight   [R]
///   y        [R, width]
void weighted_activation_forward(Threads& threads, Activation act, bool gated, std::int64_t width, const Elements& x,
                                 std::span<const float> weight, const MutableElements& y, const GateForm& form = {});
/// Gradients of weighted_activation_forward; overwrites dx and dweight.
///
///   dy        [R, width]
///   x, dx     [R, width], or [R, 2 * width] if `gated`; x is the input of the forward pass
///   dweight   [R]
void weighted_activation_backward(Threads& threads, Activation act, bool gated, std::int64_t width, const Elements& dy,
                                  const Elements& x, std::span<const float> weight, const MutableElements& dx,
                                  std::span<float> dweight, const GateForm& form = {});

/// rows[r] += factor * weight[r] * bias, or with an empty `weight` rows[r] += factor * bias; rounded once.
///
///   bias     [width]
///   weight   [R], or empty
///   rows     [R, width]
void add_bias_rows(Threads& threads, std::span<const float> bias, double factor, std::span<const float> weight,
                   const MutableElements& rows);
/// Gradients of add_bias_rows: dbias += sum over r of weight[r] * drows[r], not multiplied by `factor`, which is the
/// part of the bias that each of several ranks adds; dweight[r] += factor * dot(drows[r], bias). Sums are in double, in
/// ascending order of r.
///
///   drows     [R, width]
///   dbias     [width], or empty: it is not wanted
///   dweight   [R], or empty
void add_bias_rows_backward(Threads& threads, std::span<const float> bias, double factor, std::span<const float> weight,
                            const Elements& drows, std::span<float> dbias, std::span<float> dweight);

}  // namespace tessera::kernels
