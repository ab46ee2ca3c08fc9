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

}  // namespace tessera
