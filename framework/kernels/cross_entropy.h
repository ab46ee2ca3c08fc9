#pragma once

#include <cstdint>
#include <span>

#include "framework/kernels/threads.h"

namespace tessera {

/// Loss of each row, -log softmax(logits)[label], and where asked the gradient in place.
///
///   logits   [rows, vocabulary]   overwritten with weight[r] * (softmax - onehot) when `gradient`; else left alone
///   labels   [rows]               each in [0, vocabulary); a negative label is ignored: loss 0, gradient row exactly 0
///   weight   [rows]               d objective / d loss[r]; empty: ones
///   loss     [rows]
///
/// Sums in double or in lanes wide enough that logits of +-90 and 200k columns keep fp32 accuracy; order independent of
/// threads.
void cross_entropy(Threads& threads, std::int64_t vocabulary, std::span<float> logits,
                   std::span<const std::int32_t> labels, std::span<const float> weight, std::span<float> loss,
                   bool gradient);

/// The same by several that have some columns of the logits each, in three steps; between them the largest values are
/// put together by taking the largest, the sums by adding.
struct CrossEntropyPart {
  std::int64_t columns;       ///< here
  std::int64_t first_column;  ///< of the vocabulary
  std::int64_t vocabulary;    ///< all columns
};
/// most[r] = the largest of row r here.
void cross_entropy_largest(Threads& threads, const CrossEntropyPart& part, std::span<const float> logits,
                           std::span<float> most);
/// Given the largest over all: the row becomes e^(logit - most), sums[2 r] their sum, sums[2 r + 1] the label's logit
/// less most[r] where the label is here, else 0.
void cross_entropy_sums(Threads& threads, const CrossEntropyPart& part, std::span<float> logits,
                        std::span<const std::int32_t> labels, std::span<const float> most, std::span<double> sums);
/// Given the sums over all: loss[r], and where `gradient` the row becomes weight[r] * (softmax - onehot).
void cross_entropy_finish(Threads& threads, const CrossEntropyPart& part, std::span<float> logits,
                          std::span<const std::int32_t> labels, std::span<const double> sums,
                          std::span<const float> weight, std::span<float> loss, bool gradient);

}  // namespace tessera
