#include "framework/nn/row_norms.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "framework/autograd/ops/magnitude.h"
#include "framework/kernels/magnitude.h"
#include "framework/kernels/vector.h"

namespace tessera::nn {
namespace {

/// Of all bytes.
std::uint64_t checksum_of(std::span<const std::byte> bytes) {
  const auto words = bytes.size() / sizeof(float);
  auto sum = kernels::sum_of_words({reinterpret_cast<const float*>(bytes.data()), words});
  for (const auto rest : bytes.subspan(words * sizeof(float))) sum = 257 * sum + std::to_integer<std::uint64_t>(rest);
  return sum;
}

void copy_squares(kernels::Threads& threads, std::span<const double> from, std::span<double> to) {
  kernels::copy_bytes(threads, std::as_bytes(from), std::as_writable_bytes(to));
}

}  // namespace

/// A frozen weight is written once, before the first pass. Its first and last row tell whether other values were
/// loaded.
RowNorms::Content RowNorms::content_of_weight() const {
  const auto& shape = w_.value.shape();
  std::vector<float> row(static_cast<std::size_t>(shape[1]));
  Content content{w_.stored ? static_cast<const void*>(w_.stored.get()) : w_.value.raw().data(), {}};
  for (const auto index : {std::int64_t{0}, shape[0] - 1}) {
    kernels::read_row(w_.weight(), index, shape[1], row);
    content.sums.push_back(checksum_of(std::as_bytes(std::span(row))));
  }
  return content;
}

/// Takes the same memory whether it computes or not.
void RowNorms::weight_squares(autograd::Tape& tape, std::span<double> squares, bool computes) const {
  auto& threads = tape.threads();
  const auto rows = w_.value.shape()[0], width = w_.value.shape()[1];
  if (of_ == NormsOf::rows) {
    if (computes) kernels::row_squares(threads, w_.weight(), width, squares);
    return;
  }
  const auto parts = static_cast<std::size_t>(kernels::column_parts(rows) * width);
  const auto memory = tape.scratch(2 * parts);
  const std::span<double> partial(reinterpret_cast<double*>(memory.bytes().data()), parts);
  if (computes) kernels::column_squares(threads, w_.weight(), rows, partial, squares);
}

void RowNorms::own_squares(autograd::Tape& tape, std::span<const autograd::LowRankFactors> factors,
                           std::span<double> squares) const {
  auto& threads = tape.threads();
  const bool table = of_ == NormsOf::columns;
  if (threads.idle() || w_.trained()) {
    weight_squares(tape, squares, true);
    return autograd::add_low_rank_squares(tape, w_, table, factors, squares);
  }
  Content weight = content_of_weight(), content;
  for (const auto& one : factors)
    for (const auto* factor : {one.a, one.b}) content.sums.push_back(checksum_of(factor->value.raw()));
  const bool same_weight = weight == weight_, same = same_weight && content == factors_;
  of_weight_.resize(squares.size());
  weight_squares(tape, of_weight_, !same_weight);
  if (!same) of_sum_ = of_weight_;
  autograd::add_low_rank_squares(tape, w_, table, factors, of_sum_, !same);
  weight_ = std::move(weight), factors_ = std::move(content);
  copy_squares(threads, of_sum_, squares);
}

Memory RowNorms::norms(autograd::Tape& tape, std::span<const autograd::LowRankFactors> factors,
                       const parallel::ProcessGroups* groups) const {
  const auto rows = static_cast<std::size_t>(w_.value.shape()[of_ == NormsOf::rows ? 0 : 1]);
  auto norms = tape.scratch(rows);
  const auto memory = tape.scratch(2 * rows);
  const std::span<double> squares(reinterpret_cast<double*>(memory.bytes().data()), rows);
  own_squares(tape, factors, squares);
  if (add_up_) add_up_(groups, squares);
  const auto out = autograd::Tape::floats(norms).first(rows);
  tape.threads().parallel_for(rows, 4096, [&](std::size_t first, std::size_t last) {
    for (auto row = first; row < last; ++row) out[row] = static_cast<float>(std::sqrt(std::max(squares[row], 0.0)));
  });
  return norms;
}

}  // namespace tessera::nn
