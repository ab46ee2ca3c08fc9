#pragma once

#include "framework/autograd/ops/experts.h"
#include "framework/kernels/expert_rows.h"

/// The rows of experts.cpp, which alone includes this file.
namespace tessera::autograd {

/// Memory of one operation as a dense matrix.
class Matrix {
 public:
  Matrix(Tape& tape, DType type, std::int64_t rows, std::int64_t width)
      : memory_(tape.scratch(type, static_cast<std::size_t>(rows * width))),
        tensor_(memory_.bytes(), type, {rows, width}) {}
  const Tensor& tensor() const { return tensor_; }
  operator kernels::Elements() const { return tensor_; }  // NOLINT(google-explicit-constructor): passed to kernels
  operator kernels::MutableElements() const { return tensor_; }  // NOLINT(google-explicit-constructor)
  std::span<float> floats() const { return tensor_.floats(); }

 private:
  Memory memory_;
  Tensor tensor_;
};

inline constexpr std::size_t choices_of_a_tile = 4096;

/// The rows of this rank's tokens, as kernels/expert_rows.h defines them. In memory of the tape.
struct TokenRows {
  std::span<std::int64_t> first_row;
  std::span<std::int32_t> token_of_row, row_of_choice;
  std::span<float> weight;  ///< [R] weight of each row
  std::int64_t topk = 1;

  std::int64_t count() const { return first_row.back(); }
};

inline TokenRows rows_of(Tape& tape, const ExpertChoices& choices) {
  TokenRows rows{.first_row = tape.keep_array<std::int64_t>(static_cast<std::size_t>(choices.experts) + 1),
                 .token_of_row = tape.keep_array<std::int32_t>(choices.chosen.size()),
                 .row_of_choice = tape.keep_array<std::int32_t>(choices.chosen.size()),
                 .weight = tape.keep_array<float>(choices.chosen.size()),
                 .topk = choices.topk};
  if (choices.assumed)
    choices.assumed->sort(static_cast<std::int64_t>(choices.chosen.size()) / choices.topk, choices.topk,
                          choices.most_rows, rows.first_row);
  else
    kernels::sort_choices(choices.topk, choices.chosen, rows.first_row, rows.token_of_row, rows.row_of_choice);
  const auto R = static_cast<std::size_t>(rows.count());
  rows.token_of_row = rows.token_of_row.first(R);
  rows.weight = rows.weight.first(R);
  const auto weights = choices.weights.floats();
  tape.threads().parallel_for(rows.row_of_choice.size(), choices_of_a_tile, [&](std::size_t first, std::size_t last) {
    for (auto i = first; i < last; ++i)
      if (rows.row_of_choice[i] >= 0) rows.weight[static_cast<std::size_t>(rows.row_of_choice[i])] = weights[i];
  });
  return rows;
}

/// The rows of this rank's tokens and the rows of its experts. Without an exchange both are the same rows.
struct Rows {
  TokenRows tokens;
  const RowExchange* exchange = nullptr;
  std::span<const std::int64_t> first_row;
  std::span<const float> weight;
  std::span<const std::int64_t> sample_of_row = {}, token_of_row = {};  ///< see ExpertLayers; empty: not needed

  std::int64_t count() const { return first_row.back(); }

  /// rows[r] = the row of x of the token that row r belongs to; `rows` has the type of x.
  void gather(Tape& tape, std::int64_t width, const Tensor& x, const Matrix& rows) const {
    if (!exchange) return kernels::gather_rows(tape.threads(), width, tokens.token_of_row, x, rows);
    const Matrix own(tape, x.dtype(), tokens.count(), width);
    kernels::gather_rows(tape.threads(), width, tokens.token_of_row, x, own);
    exchange->to_experts(tape, width, own, rows);
  }
  /// y[t] = sum of the rows of token t, or y[t] += the sum if `add`.
  void sum(Tape& tape, std::int64_t width, const Matrix& rows, const kernels::MutableElements& y, bool add) const {
    const auto K = tokens.topk;
    if (!exchange) return kernels::sum_rows(tape.threads(), K, width, tokens.row_of_choice, rows.floats(), y, add);
    const Matrix own(tape, DType::float32, tokens.count(), width);
    exchange->to_tokens(tape, width, rows.floats(), own.floats());
    kernels::sum_rows(tape.threads(), K, width, tokens.row_of_choice, own.floats(), y, add);
  }
  /// choices[i] = the value of the row of choice i in `rows` [R, 1]; 0 for a dropped choice.
  void sum_choices(Tape& tape, const Matrix& rows, std::span<float> choices) const {
    const Matrix own(tape, DType::float32, exchange ? tokens.count() : 0, 1);
    if (exchange) exchange->to_tokens(tape, 1, rows.floats(), own.floats());
    const auto values = exchange ? own.floats() : rows.floats();
    tape.threads().parallel_for(choices.size(), choices_of_a_tile, [&](std::size_t first, std::size_t last) {
      for (auto i = first; i < last; ++i)
        choices[i] = tokens.row_of_choice[i] < 0 ? 0.0F : values[static_cast<std::size_t>(tokens.row_of_choice[i])];
    });
  }
};

inline Rows with_exchange(Tape& tape, const TokenRows& tokens, const ExpertRanks* ranks) {
  if (!ranks) return {tokens, nullptr, tokens.first_row, tokens.weight};
  const auto& exchange = ranks->exchange(tape, tokens.first_row);
  Rows rows{tokens, &exchange, exchange.first_row(), {}};
  const auto weight = tape.keep_array<float>(static_cast<std::size_t>(rows.count()));
  exchange.to_experts(tape, 1, std::span<const float>(tokens.weight), weight);
  rows.weight = weight;
  return rows;
}

/// The number of the token that each row of this rank's experts belongs to, from those of this rank's tokens.
inline std::span<const std::int64_t> numbers_of_rows(Tape& tape, const Rows& rows,
                                                     std::span<const std::int64_t> of_tokens) {
  const auto& tokens = rows.tokens.token_of_row;
  const auto own = tape.keep_array<std::int64_t>(tokens.size());
  tape.threads().parallel_for(tokens.size(), choices_of_a_tile, [&](std::size_t first, std::size_t last) {
    for (auto r = first; r < last; ++r) own[r] = of_tokens[static_cast<std::size_t>(tokens[r])];
  });
  if (!rows.exchange) return own;
  const auto here = tape.keep_array<std::int64_t>(static_cast<std::size_t>(rows.count()));
  rows.exchange->to_experts(tape, 1, Tensor(own, {rows.tokens.count()}), Tensor(here, {rows.count()}));
  return here;
}

}  // namespace tessera::autograd
