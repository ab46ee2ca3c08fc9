#include "framework/training/reports/score.h"

#include <algorithm>

namespace tessera::training {
namespace {

/// Fills row `row` with the window that begins at `first`; tokens that earlier windows scored are context only.
void fill_window(Batch& batch, std::int64_t row, std::span<const std::int32_t> tokens, std::int64_t first,
                 std::int64_t scored) {
  const auto out = batch.sample(row);
  const auto last = static_cast<std::int64_t>(tokens.size()) - 1;  // its label would be missing
  for (std::int64_t t = 0; t < batch.seq_length; ++t) {
    const auto i = static_cast<std::size_t>(t), at = static_cast<std::size_t>(std::min(first + t, last));
    const bool inside = first + t < last;
    out.tokens[i] = tokens[at];
    out.labels[i] = inside ? tokens[at + 1] : -1;
    out.loss_mask[i] = inside && first + t >= scored ? 1.0F : 0.0F;
    out.positions[i] = static_cast<std::int32_t>(t);
    out.document_start[i] = 0;
  }
}

void check(std::span<const std::int32_t> tokens, std::int64_t vocabulary) {
  if (tokens.size() < 2) throw ConfigError("eval: there is no token to score; the data is empty");
  for (const auto token : tokens)
    if (token < 0 || token >= vocabulary)
      throw ConfigError(text("eval: token ", token, " is outside the model's vocabulary of ", vocabulary,
                             "; was the data made with another tokenizer?"));
}

}  // namespace

autograd::LossSum score(const model::Model& model, autograd::Tape& tape, std::span<const std::int32_t> tokens,
                        std::int64_t vocabulary, const Windows& w,
                        const std::function<void(std::int64_t done, std::int64_t all)>& progress) {
  check(tokens, vocabulary);
  must(w.stride >= 1 && w.stride <= w.seq_length, "windows leave no token out");
  const auto all = static_cast<std::int64_t>(tokens.size()) - 1;
  Batch batch(w.at_once, w.seq_length);
  autograd::LossSum sum;
  std::int64_t scored = 0;
  for (std::int64_t first = 0; scored < all;) {
    std::int64_t rows = 0;
    for (; rows < w.at_once && scored < all; ++rows, first += w.stride) {
      fill_window(batch, rows, tokens, first, scored);
      scored = std::min(all, first + w.seq_length);
    }
    const auto total = model.loss(tape, batch.view(rows), {}).total;
    tape.clear();
    sum.sum += total.sum;
    sum.count += total.count;
    if (progress) progress(scored, all);
  }
  return sum;
}

}  // namespace tessera::training
